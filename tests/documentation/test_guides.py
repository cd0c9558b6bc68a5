"""The examples of the guides, of the README files of examples/, and of other pages run."""

from __future__ import annotations

from pathlib import Path

import pytest
from documentation_pages import PAGES, pages_with_examples, run_examples
from terminal_session import Terminal

FIRST = {".", "docs/tutorials", "docs/how-to", "docs/coming-from"}  # test_first_pages.py
GUIDES = pages_with_examples(*{page.parent.as_posix() for page in PAGES} - FIRST)


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.slow) if page.name == "scaling.md" else page for page in GUIDES],
    ids=str,
)
def test_examples_run(
    page: Path, stand_ins: dict[str, str], terminal: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    run_examples(page, stand_ins, terminal, capsys)
