"""``transept generate FILE...``: what a model writes for each document, or each line, without a task's prefix."""

from __future__ import annotations

import argparse

from transept.cli.documents import add_task_parser, run_task


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``transept generate``."""
    parser = add_task_parser(commands, "generate", model=None, lines=True)
    parser.set_defaults(run=generate)


def generate(arguments: argparse.Namespace) -> int:
    """``transept generate``."""
    return run_task(arguments, "generate")
