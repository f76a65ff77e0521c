"""The shape of the packages: floors, cycles, sizes, and where an import may stand.

The rules are functions from sources to complaints, so that the last part of this file can hold them
against made-up sources: a rule that cannot fail is no rule. Nothing here imports the packages, but for
the test of what importing them loads.
"""

from __future__ import annotations

import ast
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Bottom first. An import goes down, or sideways inside a floor.
FLOORS = (
    "everstep_savers",
    "everstep_savers.sql",
    "everstep",  # the vocabulary modules
    "everstep.channels",
    "everstep.stream",
    "everstep.tasks",
    "everstep.pregel",
    "everstep.graph",
    "everstep.prebuilt",
    "everstep.ops",
    "doors",
)
VOCABULARY = {
    "callbacks",
    "config",
    "constants",
    "context",
    "control",
    "declared",
    "errors",
    "namespace",
    "policies",
    "runtime",
    "types",
}
# Modules that exist because people look for names there. They define nothing, and nobody below
# imports through them.
DOORS = {"everstep.func", "everstep.managed"}

MAX_FUNCTION_LINES = 60
MAX_MEDIAN_FUNCTION_LINES = 8
MAX_MODULE_LINES = 450
MAX_PARAMETERS = 8

# `module:Class.method` of public signatures that may be wider, each with its reason.
LONG_SIGNATURES: dict[str, str] = {
    "everstep.graph.builder:StateGraph.add_node": "the ecosystem's signature",
    "everstep.graph.builder:StateGraph.compile": "the ecosystem's signature, and a keyword per choice",
    "everstep.prebuilt.chat_agent_executor:create_react_agent": "the ecosystem's signature",
    "everstep.prebuilt.injection:ToolRuntime.__init__": "the ecosystem's signature",
}

# What may be imported inside a function: optional, or too heavy for `import everstep`.
LATE_IMPORTS = {
    "aiosqlite",
    "alembic",
    "anyio",
    "asyncpg",
    "attr",
    "attrs",
    "cryptography",
    "everstep.stream.tokens",  # loads langchain_core
    "everstep_savers.sql",
    "jsonschema",
    "langchain_core",
    "numpy",
    "pydantic",
    "rich",
    "typing_extensions",
    "sqlalchemy",
    "zstandard",
}
NOT_LOADED_BY_IMPORT = (
    "sqlalchemy",
    "alembic",
    "asyncpg",
    "aiosqlite",
    "pydantic",
    "numpy",
    "langchain_core",
    "cryptography",
    "zstandard",
)
FORBIDDEN_NAMES = {"common", "helper", "helpers", "misc", "util", "utils"}


@dataclass(frozen=True, slots=True)
class Module:
    """One source file; `name` is dotted, `is_root` says that it is a package's `__init__`."""

    name: str
    source: str
    is_root: bool = False

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.source, filename=self.name)


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module (or name of a module): when it happens, and where it stands."""

    target: str
    line: int
    for_types_only: bool = False
    inside: str = ""  # the function it stands in


@dataclass(frozen=True, slots=True)
class Function:
    """One function or method with what is measured of it."""

    name: str
    lines: int
    parameters: int


Modules = dict[str, Module]


def load_modules() -> Modules:
    """Read every module of both packages."""
    found: Modules = {}
    for package in (ROOT / "runtime" / "everstep", ROOT / "savers" / "everstep_savers"):
        for path in sorted(package.rglob("*.py")):
            parts = path.relative_to(package.parent).with_suffix("").parts
            is_root = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_root else parts)
            found[name] = Module(name, path.read_text(encoding="utf-8"), is_root)
    return found


def imports_of(module: Module) -> Iterator[Import]:
    """Every import of a module; `from a import b` gives `a.b`."""

    def walk(node: ast.AST, types_only: bool, inside: str) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, types_only, inside)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield Import("." * node.level + f"{node.module or ''}.{alias.name}", node.lineno, types_only, inside)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for statement in node.body:
                yield from walk(statement, True, inside)
            for statement in node.orelse:
                yield from walk(statement, types_only, inside)
        else:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                inside = f"{inside}.{node.name}".lstrip(".")
            for child in ast.iter_child_nodes(node):
                yield from walk(child, types_only, inside)

    yield from walk(module.tree, False, "")


def functions_of(module: Module) -> Iterator[Function]:
    """Every function of a module, nested ones and methods included; docstrings do not count as lines."""

    def walk(node: ast.AST, owner: str, in_class: bool) -> Iterator[Function]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{owner}.{child.name}".lstrip(".")
                is_method = in_class and not any("staticmethod" in ast.unparse(d) for d in child.decorator_list)
                yield Function(name, _lines(child), _parameters(child) - is_method)
                yield from walk(child, name, False)
            elif isinstance(child, ast.ClassDef):
                yield from walk(child, f"{owner}.{child.name}".lstrip("."), True)
            else:
                yield from walk(child, owner, in_class)

    yield from walk(module.tree, "", False)


def _lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    if ast.get_docstring(node) is not None:
        docstring = node.body[0]
        lines -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return lines


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    a = node.args
    return len(a.posonlyargs) + len(a.args) + len(a.kwonlyargs) + (a.vararg is not None) + (a.kwarg is not None)


def imported_module(target: str, modules: Modules) -> str | None:
    """The module of ours that an import reaches; None for another project's."""
    while target:
        if target in modules:
            return target
        target = target.rpartition(".")[0]
    return None


def floor_of(name: str) -> int:
    """The floor a module stands on.

    Raises:
        LookupError: The module stands on no floor.
    """
    if name == "everstep" or name in DOORS:
        return FLOORS.index("doors")
    package, _, rest = name.partition(".")
    folder = rest.partition(".")[0]
    if f"{package}.{folder}" in FLOORS:
        return FLOORS.index(f"{package}.{folder}")
    if package == "everstep_savers" or (package == "everstep" and rest in VOCABULARY):
        return FLOORS.index(package)
    raise LookupError(f"{name}: on no floor; give it a place in a folder, in VOCABULARY or in DOORS")


def complain_of_floors(modules: Modules) -> Iterator[str]:
    """Imports that go up, or into a package root; a root may open what lies above it only when asked."""
    for module in modules.values():
        try:
            floor = floor_of(module.name)
        except LookupError as error:
            yield str(error)
            continue
        for found in imports_of(module):
            target = imported_module(found.target, modules)
            place = f"{module.name}:{found.line}"
            if found.target.startswith("."):
                yield f"{place}: relative import {found.target}; name the module in full"
            elif target is None or target == module.name:
                continue
            elif modules[target].is_root or target in DOORS:
                yield f"{place}: {found.target} through {target}, which only opens doors; name its module"
            elif floor_of(target) > floor and not (module.is_root and (found.inside or found.for_types_only)):
                yield f"{place}: goes up, from {FLOORS[floor]} to {target} on {FLOORS[floor_of(target)]}"


def complain_of_cycles(modules: Modules) -> Iterator[str]:
    """Modules that need one another to be imported."""
    graph = {
        module.name: {
            target
            for found in imports_of(module)
            if not found.for_types_only and not found.inside
            if (target := imported_module(found.target, modules)) not in (None, module.name)
        }
        for module in modules.values()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        yield "imports in a circle: " + " <- ".join(error.args[1])


def complain_of_late_imports(modules: Modules) -> Iterator[str]:
    """Imports inside functions, beside those of optional or heavy dependencies; a root opens doors so."""
    for module in modules.values():
        for found in imports_of(module):
            if not found.inside or (module.is_root and found.inside == "__getattr__"):
                continue
            if not any(found.target == late or found.target.startswith(f"{late}.") for late in LATE_IMPORTS):
                yield f"{module.name}:{found.line}: imports {found.target} inside {found.inside}()"


def complain_of_sizes(modules: Modules) -> Iterator[str]:
    """Modules and functions that are too long, and signatures that are too wide."""
    used = set()
    for module in modules.values():
        if (length := len(module.source.splitlines())) > MAX_MODULE_LINES:
            yield f"{module.name}: {length} lines, over {MAX_MODULE_LINES}; split it by idea"
        for function in functions_of(module):
            name = f"{module.name}:{function.name}"
            if function.lines > MAX_FUNCTION_LINES:
                yield f"{name}: {function.lines} lines without docstring, over {MAX_FUNCTION_LINES}"
            if function.parameters > MAX_PARAMETERS:
                used.add(name)
                if name not in LONG_SIGNATURES:
                    yield f"{name}: {function.parameters} parameters, over {MAX_PARAMETERS}; pass a record"
    for name in LONG_SIGNATURES.keys() - used:
        if name.partition(":")[0] in modules:
            yield f"{name}: in LONG_SIGNATURES without need; take it out"


def complain_of_words(modules: Modules) -> Iterator[str]:
    """Modules without a docstring, or with a name that says nothing."""
    for module in modules.values():
        if not ast.get_docstring(module.tree):
            yield f"{module.name}: no docstring; say what it is, the invariant it keeps, what it does not do"
        if module.name.rpartition(".")[2].strip("_") in FORBIDDEN_NAMES:
            yield f"{module.name}: a name that says nothing; call it by what it holds"


def complain_of_doors(modules: Modules) -> Iterator[str]:
    """Doors and roots that define something of their own."""
    allowed = ast.Import | ast.ImportFrom | ast.Expr | ast.Assign | ast.AnnAssign | ast.If
    for module in modules.values():
        if not module.is_root and module.name not in DOORS:
            continue
        for node in module.tree.body:
            is_lazy_access = isinstance(node, ast.FunctionDef) and node.name in ("__getattr__", "__dir__")
            if not isinstance(node, allowed) and not is_lazy_access:
                yield f"{module.name}:{node.lineno}: a door defines nothing; move this to a module"


RULES = (
    complain_of_floors,
    complain_of_cycles,
    complain_of_late_imports,
    complain_of_sizes,
    complain_of_words,
    complain_of_doors,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__.removeprefix("complain_of_"))
def test_packages_keep_the_rule(rule: object) -> None:
    assert callable(rule)
    complaints = list(rule(load_modules()))
    assert not complaints, "\n" + "\n".join(complaints)


def test_both_packages_are_read() -> None:
    modules = load_modules()
    assert {"everstep", "everstep.types", "everstep_savers", "everstep_savers.sql.saver"} <= modules.keys()


def test_most_functions_are_small() -> None:
    lines = [function.lines for module in load_modules().values() for function in functions_of(module)]
    assert statistics.median(lines) <= MAX_MEDIAN_FUNCTION_LINES


@pytest.mark.parametrize("package", ["everstep", "everstep_savers"])
def test_import_leaves_heavy_dependencies_alone(package: str) -> None:
    program = f"import json, sys, {package}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not set(NOT_LOADED_BY_IMPORT) & set(json.loads(done.stdout))


# The rules themselves, held against made-up sources.


def made_up(**sources: str) -> Modules:
    """Modules by name, `__` for a dot; a name ending in `__` is a package root."""
    found: Modules = {}
    for key, source in sources.items():
        name = key.removesuffix("__").replace("__", ".")
        found[name] = Module(name, source, is_root=key.endswith("__"))
    return found


def test_an_import_that_goes_up_is_found() -> None:
    modules = made_up(everstep__channels__base="from everstep.pregel.loop import run", everstep__pregel__loop="")
    assert list(complain_of_floors(modules)) == [
        "everstep.channels.base:1: goes up, from everstep.channels to everstep.pregel.loop on everstep.pregel"
    ]


def test_an_import_for_types_only_goes_up_all_the_same() -> None:
    source = "if TYPE_CHECKING:\n    import everstep.types"
    modules = made_up(everstep_savers__base=source, everstep__types="")
    assert list(complain_of_floors(modules)) == [
        "everstep_savers.base:2: goes up, from everstep_savers to everstep.types on everstep"
    ]


def test_imports_down_and_sideways_are_fine() -> None:
    modules = made_up(
        everstep__pregel__loop="from everstep.pregel import plan\nfrom everstep.types import Send",
        everstep__pregel__plan="import everstep_savers.base",
        everstep__pregel__="",
        everstep__types="",
        everstep_savers__base="",
    )
    assert list(complain_of_floors(modules)) == []


def test_an_import_through_a_package_root_is_found() -> None:
    modules = made_up(everstep__pregel__loop="from everstep import Send", everstep__="", everstep__types="")
    assert list(complain_of_floors(modules)) == [
        "everstep.pregel.loop:1: everstep.Send through everstep, which only opens doors; name its module"
    ]


def test_a_relative_import_is_found() -> None:
    modules = made_up(everstep__pregel__loop="from . import plan")
    assert list(complain_of_floors(modules)) == [
        "everstep.pregel.loop:1: relative import ..plan; name the module in full"
    ]


def test_a_root_opens_a_higher_floor_only_when_asked() -> None:
    lazy = "def __getattr__(name):\n    from everstep_savers.sql.saver import SQLSaver"
    saver = {"everstep_savers__sql__saver": ""}
    assert list(complain_of_floors(made_up(everstep_savers__=lazy, **saver))) == []
    typed = "if TYPE_CHECKING:\n    from everstep_savers.sql.saver import SQLSaver"
    assert list(complain_of_floors(made_up(everstep_savers__=typed, **saver))) == []
    eager = made_up(everstep_savers__="from everstep_savers.sql.saver import SQLSaver", **saver)
    assert list(complain_of_floors(eager)) == [
        "everstep_savers:1: goes up, from everstep_savers to everstep_savers.sql.saver on everstep_savers.sql"
    ]


def test_a_module_on_no_floor_is_found() -> None:
    assert list(complain_of_floors(made_up(everstep__stuff=""))) == [
        "everstep.stuff: on no floor; give it a place in a folder, in VOCABULARY or in DOORS"
    ]


def test_a_cycle_is_found_and_one_for_types_only_is_not() -> None:
    one = "from everstep.graph.b import B"
    assert list(complain_of_cycles(made_up(everstep__graph__a=one, everstep__graph__b="import everstep.graph.a")))
    for_types = "if TYPE_CHECKING:\n    import everstep.graph.a"
    assert list(complain_of_cycles(made_up(everstep__graph__a=one, everstep__graph__b=for_types))) == []


def test_a_late_import_is_found_and_a_heavy_one_allowed() -> None:
    source = "def f():\n    import json\n    import sqlalchemy\n    from everstep_savers.sql import saver"
    assert list(complain_of_late_imports(made_up(everstep__types=source))) == [
        "everstep.types:2: imports json inside f()"
    ]


def test_sizes_are_measured_without_docstrings_and_without_self() -> None:
    body = "\n".join(["        x = 1"] * MAX_FUNCTION_LINES)
    source = f'class A:\n    def f(self, a, b, *, c, d, e, g, h, **i):\n        """D.\n\n        E."""\n{body}'
    assert list(complain_of_sizes(made_up(everstep__types=source))) == [
        f"everstep.types:A.f: {MAX_FUNCTION_LINES + 1} lines without docstring, over {MAX_FUNCTION_LINES}"
    ]
    wide = "def f(a, b, c, /, d, e, f, *g, h, **i): ..."
    assert list(complain_of_sizes(made_up(everstep__types=wide))) == [
        f"everstep.types:f: 9 parameters, over {MAX_PARAMETERS}; pass a record"
    ]
    long_module = "x = 1\n" * (MAX_MODULE_LINES + 1)
    assert list(complain_of_sizes(made_up(everstep__types=long_module))) == [
        f"everstep.types: {MAX_MODULE_LINES + 1} lines, over {MAX_MODULE_LINES}; split it by idea"
    ]


def test_an_exception_without_need_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = "def f(a, b, c, d, e, f, g, h, i): ..."
    monkeypatch.setitem(LONG_SIGNATURES, "everstep.types:f", "people know it so")
    assert list(complain_of_sizes(made_up(everstep__types=wide))) == []
    assert list(complain_of_sizes(made_up(everstep__types="x = 1"))) == [
        "everstep.types:f: in LONG_SIGNATURES without need; take it out"
    ]


def test_a_silent_module_and_an_empty_name_are_found() -> None:
    assert list(complain_of_words(made_up(everstep__graph___utils='"""Odds and ends."""', everstep__types=""))) == [
        "everstep.graph._utils: a name that says nothing; call it by what it holds",
        "everstep.types: no docstring; say what it is, the invariant it keeps, what it does not do",
    ]


def test_a_door_that_defines_something_is_found() -> None:
    source = '"""Door."""\nfrom everstep.graph.functional import task\n__all__ = ["task"]\ndef extra(): ...'
    assert list(complain_of_doors(made_up(everstep__func=source))) == [
        "everstep.func:4: a door defines nothing; move this to a module"
    ]
