"""``transept translate FILE...``: each document, or each line, in another language."""

from __future__ import annotations

import argparse

from transept.cli.documents import add_task_parser, run_task

DEFAULT_MODEL = "google-t5/t5-base"


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``transept translate``."""
    parser = add_task_parser(commands, "translate", "translate text files", model=DEFAULT_MODEL, lines=True)
    for option, role in (("--source", "from"), ("--target", "to")):
        parser.add_argument(
            option,
            metavar="LANGUAGE",
            help=f"language to translate {role}, such as de, for NLLB deu_Latn; optional where there is no choice",
        )
    parser.set_defaults(run=translate)


def translate(arguments: argparse.Namespace) -> int:
    """``transept translate``."""
    return run_task(arguments, "translate", source=arguments.source, target=arguments.target)
