"""The pages for readers, and the examples in them.

The examples of a page run one after the other in one folder, as a reader would type them, on real checkpoints and real
speech in place of those that a hub would send:

- ```` ```python ```` runs. If ```` ```text ```` follows, that block is its output.
- ```` ```console ```` has commands after ``$ ``, and beneath each its output: standard output and standard error.
  ``transept serve`` stays up until the page ends; only its standard output is compared. ``curl`` commands are left
  out where curl is missing.
- ```` ```python title="name.py" ```` (or any other language) is written to that file.

A line of ``...`` in shown output stands for any lines, ``...`` at the end of a line for its rest, and times that a
machine takes may differ. A comment before an example, ``<!-- not run: why -->``, leaves it out.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from terminal_session import Terminal

ROOT = Path(__file__).parents[2]
SKIPPED = {"build", "dist", "site", "gpu-wheels"}  # what commands make
PAGES = sorted(
    page.relative_to(ROOT)
    for page in ROOT.rglob("*.md")
    if not any(part in SKIPPED or part.startswith(".") for part in page.relative_to(ROOT).parts)
)
FENCE = re.compile(
    r"""^(?:<!--\ not\ run:\ (?P<why>[^\n]+)\ -->\n)?
    ```(?P<language>\w*)(?:\ title="(?P<file>[^"]+)")?\n(?P<text>.*?)^```$
    (?:\n\n```text\n(?P<shown>.*?)^```$)?""",
    re.M | re.S | re.X,
)
# Parts of an output that depend on the machine: times and speeds.
TIMES = re.compile(r"(?<=\bin )[\d.]+(?= ?s\b)|[\d.]+(?= times real time)|[\d.]+(?= s in all)")


class Example(NamedTuple):
    """A code block. line: of its first line in the page, from 1; shown: its output, or None."""

    line: int
    language: str
    text: str
    not_run: str | None
    file: str | None
    shown: str | None


def examples(page: Path) -> list[Example]:
    """Return the blocks of a page that run, or that say why they do not."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        Example(text.count("\n", 0, match.start("text")) + 1, *match.group("language", "text", "why", "file", "shown"))
        for match in FENCE.finditer(text)
        if match["language"] in ("python", "console") or match["file"]
    ]


def pages_with_examples(*folders: str) -> list[Path]:
    """Return the pages in folders, named from the root, that have examples that run."""
    pages = [page for page in PAGES if page.parent.as_posix() in folders]
    return [page for page in pages if any(not example.not_run for example in examples(page))]


def matches(shown: str, printed: str) -> bool:
    """True if output is as shown, but for times and for lines that stand as ``...``."""
    lines, text = TIMES.sub("#", shown).strip().splitlines(), TIMES.sub("#", printed).strip()
    pattern = "".join(
        r"(?:.*\n)*"
        if line == "..."
        else re.escape(line.removesuffix(" ...")) + (" .*\n" if line[-4:] == " ..." else " *\n")
        for line in map(str.rstrip, lines)
    )
    return re.fullmatch(pattern, text and f"{text}\n") is not None


def commands(text: str) -> list[tuple[int, str, str]]:
    """Return the commands of a console block: line in the block from 0, command, shown output."""
    found: list[tuple[int, str, str]] = []
    for number, line in enumerate(text.splitlines()):
        if line.startswith("$ "):
            found.append((number, line[2:], ""))
        elif found and found[-1][1].endswith("\\") and not found[-1][2]:
            found[-1] = (found[-1][0], found[-1][1][:-1] + line.strip(), "")
        else:
            found[-1] = (*found[-1][:2], found[-1][2] + line + "\n")
    return found


def run_examples(page: Path, stand_ins: dict[str, str], terminal: Terminal, capsys: pytest.CaptureFixture[str]) -> None:
    """Run the examples of a page and compare their output with the shown one."""
    names: dict[str, object] = {"__name__": "example"}
    for example in examples(page):
        if example.not_run:
            continue
        text = example.text
        if example.file:
            Path(example.file).parent.mkdir(parents=True, exist_ok=True)
            Path(example.file).write_text(text, encoding="utf-8")
        elif example.language == "console":
            for line, command, shown in commands(text):
                if command.startswith("curl ") and shutil.which("curl") is None:
                    continue
                printed = terminal.run(command)
                assert matches(shown, printed), f"{page}:{example.line + line}: {command}\n{printed}"
        else:
            text = terminal.own_address(text)
            for stands, runs in stand_ins.items():
                text = text.replace(stands, runs)
            exec(compile("\n" * (example.line - 1) + text, str(ROOT / page), "exec", dont_inherit=True), names)
            printed = capsys.readouterr().out
            assert printed.strip() or "print(" not in example.text
            assert "failed: " not in printed
            assert example.shown is None or matches(example.shown, printed), f"{page}:{example.line}\n{printed}"
