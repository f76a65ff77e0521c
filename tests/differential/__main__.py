"""``python -m tests.differential``: thousands of random graph programs on Everstep and on LangGraph.

EVERSTEP_PEER_PYTHON names the interpreter of an environment that has LangGraph. Every disagreement is printed with
the shortest program that shows it; the exit code tells whether there was one.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter

from tests.differential.differences import ON_PURPOSE, Place
from tests.differential.programs import Program, make_program
from tests.differential.sides import Pair, both_sides


def main() -> int:
    """Run the programs of a range of seeds."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--programs", type=int, default=2000, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first one (default: %(default)s)")
    parser.add_argument("--most", type=int, default=5, help="disagreements to shorten and show (default: %(default)s)")
    chosen = parser.parse_args()
    peer = os.environ.get("EVERSTEP_PEER_PYTHON")
    if not peer:
        parser.error("set EVERSTEP_PEER_PYTHON to the python of an environment that has LangGraph")
    with both_sides(sys.executable, peer) as pair:
        return compare_all(pair, range(chosen.seed, chosen.seed + chosen.programs), chosen.most)


def compare_all(pair: Pair, seeds: range, most: int) -> int:
    """Compare the programs of these seeds, print what came of it; 1 if there was a disagreement, else 0."""
    on_purpose: Counter[str] = Counter()
    disagreeing: list[int] = []
    same, unsteady = 0, []
    for seed in seeds:
        program = make_program(seed)
        verdict = pair.judge(program)
        if verdict.place is None:
            same += 1
        elif verdict.known is not None:
            on_purpose[verdict.known.name] += 1
        elif not verdict.is_steady:
            unsteady.append(seed)
        else:
            disagreeing.append(seed)
            if len(disagreeing) <= most:
                show(seed, *pair.shortest(program, verdict.place))
    tell(f"{len(seeds)} programs: {same} the same, {sum(on_purpose.values())} different on purpose, ")
    tell(f"  {len(unsteady)} not the same twice {unsteady}, {len(disagreeing)} disagreements {disagreeing}")
    for known in ON_PURPOSE:
        tell(f"  {on_purpose[known.name]:5}  {known.name}: {known.about}")
    return 1 if disagreeing else 0


def show(seed: int, program: Program, place: Place) -> None:
    """Print a disagreement."""
    tell(f"seed {seed}: {place.name} of deed {place.number}\n{json.dumps(program)}")
    tell(f"  ours:   {json.dumps(place.ours)}\n  theirs: {json.dumps(place.theirs)}")


def tell(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
