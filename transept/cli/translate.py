"""``transept translate FILE...``: each document, or each line, in another language."""

from __future__ import annotations

import argparse

from transept.cli.documents import add_task_parser, run_task
from transept.text.options import TRANSLATE_MODEL


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``transept translate``."""
    parser = add_task_parser(commands, "translate", model=TRANSLATE_MODEL, lines=True, languages=True)
    parser.set_defaults(run=translate)


def translate(arguments: argparse.Namespace) -> int:
    """``transept translate``."""
    return run_task(arguments, "translate")
