"""No module and no folder depends on itself by way of others; the contracts in pyproject.toml say which way is up.

Imports for type checkers count, and so do those inside functions. The core has limits on its files besides.
"""

from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

CORE = Path(__file__).parents[1] / "transept" / "core"
LANDING = {"config", "engine", "engine_core", "model", "model_shape", "outputs"}  # all else is in a folder
MOST_LINES = 350


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
