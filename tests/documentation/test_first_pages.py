"""README.md, tutorials, how-to pages and notebooks: examples run, and their output is the shown one."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest
from documentation_pages import ROOT, commands, examples, matches, pages_with_examples, run_examples
from terminal_session import Terminal

NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("page", pages_with_examples(".", "docs/tutorials", "docs/how-to"), ids=str)
def test_examples_run(
    page: Path, stand_ins: dict[str, str], terminal: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    run_examples(page, stand_ins, terminal, capsys)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_notebooks_run(notebook: Path, stand_ins: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {"__name__": "notebook"}
    for number, cell in enumerate(json.loads(notebook.read_text(encoding="utf-8"))["cells"]):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{notebook.name}, cell {number}", "exec", dont_inherit=True), names)
            shown = "".join(line for output in cell["outputs"] for line in output["text"])
            assert matches(shown, printed := capsys.readouterr().out), f"cell {number} prints\n{printed}"


def test_the_recording_shows_the_commands_of_the_readme() -> None:
    drawn = html.unescape((ROOT / "docs" / "images" / "terminal.svg").read_text(encoding="utf-8"))
    blocks = [example.text for example in examples(Path("README.md")) if example.language == "console"]
    shown = [command for block in blocks for _, command, _ in commands(block)]
    assert re.findall(r"<text [^>]*>\$ (.*)</text>", drawn) == shown, "run `make recording`"
