"""``transept summarize FILE...``: a summary of each document."""

from __future__ import annotations

import argparse

from transept.cli.documents import add_task_parser, run_task
from transept.text.options import SUMMARIZE_MODEL


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``transept summarize``."""
    parser = add_task_parser(commands, "summarize", model=SUMMARIZE_MODEL, lines=False)
    parser.set_defaults(run=summarize)


def summarize(arguments: argparse.Namespace) -> int:
    """``transept summarize``."""
    return run_task(arguments, "summarize")
