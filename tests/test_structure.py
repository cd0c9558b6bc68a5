"""No module and no folder depends on itself by way of others; the contracts in pyproject.toml say which way is up.

Imports for type checkers count, and so do those inside functions. The core has limits on its files besides.
"""

import ast
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

PACKAGE = Path(__file__).parents[1] / "transept"
CORE = PACKAGE / "core"
LANDING = {
    "config",
    "engine",
    "engine_core",
    "model",
    "model_shape",
    "option_types",
    "outputs",
}  # all else is in a folder
MOST_LINES = 350
# Of modules that stand for one another, as commands and families do, each has its own of these.
ONE_EACH = {"add_parser", "register_models", "__getattr__", "__dir__", "logger"}


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    """Module -> the modules of the package that it imports."""
    graph = grimp.build_graph("transept", cache_dir=None)
    found = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert sum(map(len, found.values())) > 500
    return found


def circle(depends_on):
    """Names that depend on one another, or nothing."""
    try:
        TopologicalSorter(depends_on).prepare()
    except CycleError as error:
        return " -> ".join(error.args[1])
    return None


def within(folder, module):
    """The part of a folder that a module is, or lies in; None for one outside."""
    parts = module.removeprefix(f"{folder}.").split(".")
    return parts[0] if module.startswith(f"{folder}.") else None


def test_modules_make_no_circle(imports):
    assert circle(imports) is None


def test_folders_make_no_circle(imports):
    folders = {module.rpartition(".")[0] for module in imports} - {""}
    circles = {}
    for folder in folders:
        depends_on = {}
        for module, imported in imports.items():
            if (part := within(folder, module)) is not None:
                others = {within(folder, each) for each in imported} - {part, None}
                depends_on.setdefault(part, set()).update(others)
        if found := circle(depends_on):
            circles[folder] = found
    assert circles == {}


def test_a_circle_is_found():
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}}) is not None


def test_the_landing_of_the_core_stays_small():
    assert {file.stem for file in CORE.glob("*.py")} - {"__init__"} == LANDING


def test_files_of_the_core_stay_short():
    lines = {str(file.relative_to(CORE)): len(file.read_text().splitlines()) for file in CORE.rglob("*.py")}
    assert len(lines) > 100
    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}


def test_one_name_of_the_core_means_one_thing():
    """Public functions, classes and constants of the core's modules, and its modules' own names."""
    homonyms = defaultdict(set)
    for file in sorted(CORE.rglob("*.py")):
        if file.name == "__init__.py":
            continue
        for name, meaning in definitions(file):
            if not name.startswith("_") and name not in ONE_EACH:
                homonyms[name].add(f"{file.relative_to(CORE)}: {meaning}")
    several = {name: sorted(places) for name, places in homonyms.items() if len(places) > 1}
    assert not several, "\n".join(f"{name}: {'; '.join(places)}" for name, places in sorted(several.items()))


def definitions(file):
    """Names that a module defines at its top, with where each stands."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, f"line {node.lineno}" if not overloaded(node) else "overloads"
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = (name for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
            yield from ((name.id, f"line {node.lineno}") for name in names)


def overloaded(node):
    return any("overload" in ast.unparse(decorator) for decorator in getattr(node, "decorator_list", ()))


# Errors about what a call may not do at this time: no option is at fault.
OF_NO_OPTION = {
    ("core/engine.py", "_owned"): "another thread uses the engine",
    ("core/jobs/tasks.py", "_waits_for"): "a job waits for nothing",
    ("serving/async_engine.py", "_bind"): "another event loop has the engine",
    ("serving/async_engine.py", "run"): "a ticket has run its job",
}


def unnamed(tree: ast.Module) -> set[str]:
    """The functions that make a ParameterError without `param`."""
    return {
        function.name
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") in ("ParameterError", "UnsupportedTaskError")
        if "param" not in {keyword.arg for keyword in call.keywords}
    }


def test_every_parameter_error_names_its_parameter():
    found = {
        (str(file.relative_to(PACKAGE)), name)
        for file in PACKAGE.rglob("*.py")
        for name in unnamed(ast.parse(file.read_text()))
    }
    assert found == {*OF_NO_OPTION}
    assert unnamed(ast.parse("def f():\n    raise ParameterError('x is wrong')")) == {"f"}
