"""The pages for those who come from another program: their examples run, and they name only what Transept has."""

from __future__ import annotations

import argparse
import contextlib
import re
from importlib import import_module
from pathlib import Path

import pytest
from documentation_pages import ROOT, pages_with_examples, run_examples
from terminal_session import Terminal

from transept.cli import _parser

PAGES = sorted(page for page in (ROOT / "docs" / "coming-from").glob("*.md") if page.name != "index.md")
ROW = re.compile(r"^\| (?P<theirs>.*?) \| (?P<ours>.*?) \|.*\|$", re.M)


def names(page: Path) -> list[str]:
    """Return the names in backquotes in the column `Transept` of a page's tables."""
    rows = [row["ours"] for row in ROW.finditer(page.read_text(encoding="utf-8"))]
    return [name for row in rows if row not in ("Transept", "---") for name in re.findall(r"`([^`]+)`", row)]


def all_flags() -> set[str]:
    """Return the flags of every command."""
    found, parsers = set(), [_parser()]
    while parsers:
        for action in parsers.pop()._actions:
            found |= set(action.option_strings)
            if isinstance(action, argparse._SubParsersAction):
                parsers += action.choices.values()
    return found


def declared_options() -> set[str]:
    """Return the names of docs/options.md, which a test holds equal to their declarations."""
    page = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")
    return set(re.findall(r"^\| `(\w+)` \|", page.partition("## Other programs' names")[0], re.M))


def resolve(name: str) -> object:
    """Return the object that a dotted name stands for. Raises ImportError or AttributeError."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: object = import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = fields[part] if part in (fields := getattr(found, "__annotations__", {})) else getattr(found, part)
        return found
    raise ImportError(name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_name_exists(page: Path) -> None:
    flags, options = all_flags(), declared_options()
    paths = (ROOT / "docs" / "reference" / "http.md").read_text(encoding="utf-8")
    found = names(page)
    assert len(found) > 10
    for name in found:
        if name.startswith("-"):
            assert name.split()[0] in flags, name
        elif name.startswith("transept "):
            _parser(name.split()[1:]).parse_args(name.split()[1:])
        elif name.startswith("/"):
            assert f"`POST {name}`" in paths, name
        elif name.startswith("transept."):
            resolve(name.partition("(")[0])
        else:
            assert name.partition("=")[0] in options, name


COMMANDS = {"whisperx": "transcribe", "openai-whisper": "transcribe", "whisper-cpp": "transcribe", "vllm": "serve"}


@pytest.mark.parametrize("page", COMMANDS)
def test_every_flag_of_the_other_program_is_taken_or_has_a_hint(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    text, command = (ROOT / "docs" / "coming-from" / f"{page}.md").read_text(encoding="utf-8"), COMMANDS[page]
    flags = [name for row in ROW.finditer(text) for name in re.findall(r"`(--?[\w-]+)", row["theirs"]) if name != "---"]
    assert len(flags) > 8
    for name in flags:
        with contextlib.suppress(SystemExit):
            _parser([command]).parse_args([command, "x", name])
        message = capsys.readouterr().err.partition(" error: ")[2]
        assert not re.match(rf"unexpected arguments|there is no option {name}\. See ", message), message


@pytest.mark.sampled(2)
@pytest.mark.parametrize("page", pages_with_examples("docs/coming-from"), ids=lambda page: page.stem)
def test_examples_run(
    page: Path, stand_ins: dict[str, str], terminal: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    run_examples(page, stand_ins, terminal, capsys)
