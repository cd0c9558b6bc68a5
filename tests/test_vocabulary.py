"""The names in code and the headings in documentation are the field's words, and one name means one thing.

CONTRIBUTING.md has the words and what we say instead.
"""

import ast
import re
import subprocess
import tokenize
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# said otherwise: what we say
REPLACED = {
    "newcomer": "prefill, or new request",
    "likeliest": "argmax, or top-k",
    "spread": "broadcast",
    "turned": "transposed",
    "together": "gather, or batch",
    "stored weight": "packed weight",
    "store weights": "pack weights",
    "storing": "packing",
    "stored as": "packed as",
    "computes alone": "asynchronous device",
    "homes": "lazy imports",
    "author's door": "public plugin API",
    "one way down": "layered architecture",
}

CODE = [ROOT / folder for folder in ("transept", "benchmarks", "examples")]
# Of modules that stand for one another, as commands and families do, each has its own of these.
ONE_EACH = {"add_parser", "register_models", "__getattr__", "__dir__", "logger"}


def words_of(identifier: str) -> str:
    """Its words in lower case, with blanks around each: ``StoredWeight`` and ``stored_weights`` begin alike."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", identifier.replace("_", " "))
    return f" {apart.lower()} "


def replaced_in(text: str) -> list[str]:
    return [word for word in REPLACED if re.search(rf"\b{word}(s|es)?\b", text)]


def python_files(*folders: Path) -> list[Path]:
    return [file for folder in folders for file in sorted(folder.rglob("*.py"))]


def identifiers(file: Path) -> set[str]:
    if file.suffix == ".py":
        with file.open("rb") as opened:
            tokens = tokenize.tokenize(opened.readline)
            return {token.string for token in tokens if token.type == tokenize.NAME} | {file.stem}
    without_comments = re.sub(r"//.*|/\*.*?\*/|\"[^\"\n]*\"", " ", file.read_text(encoding="utf-8"))
    return {*re.findall(r"\w+", without_comments), file.stem}


@pytest.mark.parametrize("folder", CODE, ids=lambda folder: folder.name)
def test_identifiers_are_the_fields_words(folder):
    files = [file for kind in ("*.py", "*.cpp", "*.h") for file in sorted(folder.rglob(kind))]
    assert files
    found = {
        f"{file.relative_to(ROOT)}: {name}: say {REPLACED[word]}"
        for file in files
        for name in identifiers(file)
        for word in replaced_in(words_of(name))
    }
    assert not found, "\n".join(sorted(found))


def test_headings_are_the_fields_words():
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=False)
    files = [ROOT / name for name in listed.stdout.splitlines()] or [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    headings = [
        (file, line.lower())
        for file in files
        for line in file.read_text(encoding="utf-8").splitlines()
        if line.startswith("#")
    ]
    assert len(headings) > 100
    found = [f"{file.relative_to(ROOT)}: {line}" for file, line in headings if replaced_in(line)]
    assert not found, "\n".join(found)


def test_the_words_are_found():
    """The test itself: plurals, joined words and camel case."""
    names = ("_newcomers", "StoredWeight", "store_weights", "LIKELIEST", "_HOMES", "is_turned")
    assert all(replaced_in(words_of(name)) for name in names)
    assert not any(replaced_in(words_of(name)) for name in ("home", "returned", "stored", "weights", "widespread"))


def test_one_name_of_the_core_means_one_thing():
    """Public functions, classes and constants of the core's modules, and its modules' own names."""
    homonyms = defaultdict(set)
    files = [file for file in python_files(ROOT / "transept" / "core") if file.name != "__init__.py"]
    for file in files:
        for name, meaning in definitions(file):
            if not name.startswith("_") and name not in ONE_EACH:
                homonyms[name].add(f"{file.relative_to(ROOT)}: {meaning}")
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
