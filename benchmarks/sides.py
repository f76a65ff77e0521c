"""The two sides of a comparison: the interpreter each runs with, and one kernel run in a new process.

LangGraph gets an environment of its own, so that neither package's dependencies decide the other's
versions.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
PEER_ENVIRONMENT = HERE.parent / ".bench" / "peer"
PEER_REQUIREMENTS = HERE / "peer-requirements.txt"

DISTRIBUTIONS = {
    "everstep": ("everstep", "sqlalchemy", "asyncpg"),
    "langgraph": ("langgraph", "langgraph-checkpoint-sqlite", "langgraph-checkpoint-postgres", "psycopg"),
}


@dataclass(frozen=True, slots=True)
class Side:
    """A package under test and the interpreter that has it."""

    package: str
    python: str

    def run(self, kernel: str, new_database: Callable[[str], str]) -> list[float]:
        """Run a kernel in a new process with a new database, and return its numbers.

        Raises:
            RuntimeError: The process failed; its last words are in the message.
        """
        with tempfile.TemporaryDirectory(prefix="everstep-bench-") as directory:
            database = str(Path(directory, "bench.sqlite"))
            if kernel.partition("_")[2].startswith("postgres"):
                database = new_database(f"{self.package}_{kernel}")
            command = [self.python, str(HERE / "workloads.py"), self.package, kernel, "--database", database]
            done = subprocess.run(command, env=self._environment(), capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{self.package} {kernel}: exit code {done.returncode}\n{done.stderr[-2000:]}")
        return [float(number) for number in json.loads(done.stdout)]

    def versions(self) -> dict[str, str]:
        """Versions of the package and of what it stores with; an uninstalled source tree has none."""
        program = (
            "import json, sys\nfrom importlib import metadata\nfound = {}\n"
            "for name in sys.argv[1:]:\n"
            "    try: found[name] = metadata.version(name)\n"
            "    except metadata.PackageNotFoundError: pass\n"
            "print(json.dumps(found))"
        )
        command = [self.python, "-c", program, *DISTRIBUTIONS[self.package]]
        done = subprocess.run(command, env=self._environment(), capture_output=True, text=True, check=True)
        return {str(name): str(version) for name, version in json.loads(done.stdout).items()}

    def _environment(self) -> dict[str, str]:
        if self.package == "everstep":
            return dict(os.environ)
        # A path that leads to our sources is not the peer's business.
        return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def our_side() -> Side:
    """Everstep, as the running interpreter has it."""
    return Side("everstep", sys.executable)


def peer_side() -> Side:
    """LangGraph in its own environment, made at the first use and when the requirements change."""
    python = PEER_ENVIRONMENT / "bin" / "python"
    stamp = PEER_ENVIRONMENT / "installed.txt"
    wanted = PEER_REQUIREMENTS.read_text(encoding="utf-8")
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        sys.stderr.write(f"Installing LangGraph in {PEER_ENVIRONMENT} ...\n")
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(PEER_ENVIRONMENT)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, "--requirement", str(PEER_REQUIREMENTS)], check=True)
        stamp.write_text(wanted, encoding="utf-8")
    return Side("langgraph", str(python))
