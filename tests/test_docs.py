"""README and docs, run as written.

Blocks of one file run in order in one fresh directory. Python blocks share one namespace, as if typed
into one program; shell blocks run in that directory, in one shell each, with this Python first on the
path. An `output` block right after a block is what that block must print; ids, times and paths that
change from run to run are written `...` there. A block that must not run (it needs a server of the
reader's, or is a piece of a larger program) says so: its fence carries `no-run`.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "ARCHITECTURE.md", *(ROOT / "docs").glob("**/*.md")])
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, its text, the line it starts on, and the output it promises."""

    language: str
    text: str
    line: int
    output: str | None = None


def blocks_of(markdown: str) -> Iterator[Block]:
    """The blocks of a document that are to be run, in order."""
    fences = list(FENCE.finditer(markdown))
    for fence, following in zip_longest(fences, fences[1:]):
        language, *marks = fence["info"].split() or [""]
        if language not in ("python", "sh") or "no-run" in marks:
            continue
        promised = following["text"] if following and following["info"].strip() == "output" else None
        line = markdown.count("\n", 0, fence.start()) + 1
        yield Block(language, fence["text"], line, promised)


def run_python(block: Block, name: str, namespace: dict[str, Any]) -> str:
    """Run a block in the document's namespace and return what it printed."""
    printed = io.StringIO()
    # Line numbers of a traceback are those of the document.
    code = compile("\n" * block.line + block.text, name, "exec", dont_inherit=True)
    with contextlib.redirect_stdout(printed):
        exec(code, namespace)
    return printed.getvalue()


def run_shell(block: Block, directory: Path) -> str:
    """Run a block in a shell that stops at the first failure, and return what it printed."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-e"],
        input=block.text,
        check=False,
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, f"line {block.line}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def matches(promised: str, printed: str) -> bool:
    """Whether that is the output promised: `...` is any text within a line, and alone any lines."""
    lines = (
        r"(?s:.*)" if line.strip() == "..." else ".*".join(map(re.escape, line.rstrip().split("...")))
        for line in promised.strip().splitlines()
    )
    told = "\n".join(line.rstrip() for line in printed.strip().splitlines())
    return re.fullmatch("\n".join(lines), told) is not None


def run_document(markdown: str, name: str, directory: Path) -> None:
    """Run the blocks of one document in order, Python's in a `__main__` of their own.

    Raises:
        AssertionError: A block printed something else than promised.
    """
    program = ModuleType("__main__")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "__main__", program)
        patch.chdir(directory)
        for block in blocks_of(markdown):
            is_python = block.language == "python"
            printed = run_python(block, name, vars(program)) if is_python else run_shell(block, directory)
            if block.output is not None and not matches(block.output, printed):
                pytest.fail(f"{name}:{block.line} promises\n{block.output}\nand prints\n{printed}", pytrace=False)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_blocks_run_as_written(document: Path, tmp_path: Path) -> None:
    run_document(document.read_text(encoding="utf-8"), str(document), tmp_path)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_inside_the_repository_lead_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\((?![a-z]+:|#)([^)#\s]+)", document.read_text(encoding="utf-8"))
    assert [target for target in targets if not (document.parent / target).exists()] == []


def test_a_false_promise_is_found(tmp_path: Path) -> None:
    run_document("```python\nprint(1)\n```\n\n```output\n1\n```\n", "a.md", tmp_path)
    with pytest.raises(pytest.fail.Exception, match=r"a\.md:1 promises\n2\n"):
        run_document("```python\nprint(1)\n```\n\n```output\n2\n```\n", "a.md", tmp_path)


def test_a_failing_block_is_found_at_its_line(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        run_document("text\n\n```python\n1 / 0\n```\n", "a.md", tmp_path)
    assert caught.traceback[-1].lineno == 3  # counted from 0: the document's fourth line
    with pytest.raises(AssertionError, match="line 1: exit code 3"):
        run_document("```sh\nexit 3\n```\n", "a.md", tmp_path)


def test_blocks_share_names_and_directory(tmp_path: Path) -> None:
    fences = [
        ("sh", "echo hello > f"),
        ("python", "x = 1"),
        ("python no-run", "x = 2"),
        ("python", "x += 1; print(x, __name__)"),
        ("output", "2 __main__"),
        ("sh", "cat f"),
        ("output", "hello"),
    ]
    run_document("".join(f"```{info}\n{text}\n```\n\n" for info, text in fences), "a.md", tmp_path)


@pytest.mark.parametrize(
    ("promised", "printed", "holds"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a ...\n", "a 3 ms\n", True),
        ("a\n...\nd\n", "a\nb\nc\nd\n", True),
        ("a ...\n", "b 3 ms\n", False),
        ("a ...\n", "a 3 ms\nmore\n", False),
        ("a|b\n", "a\n", False),
    ],
)
def test_dots_stand_for_what_changes(promised: str, printed: str, holds: bool) -> None:
    assert matches(promised, printed) is holds
