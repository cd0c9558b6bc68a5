"""The command line, ``transept COMMAND ...``: one module for each command, each with one function for each subcommand.

A command module has ``add_parser(commands)``, which declares the arguments and sets the default ``run``, a function
from the parsed arguments to an exit code. To add a command, write the module and name it in `COMMANDS`.

Nothing heavy is imported here or in the head of a command's module: torch and transformers load inside ``run``.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import sys
from collections.abc import Sequence
from typing import Any

from transept.cli import generate, plugins, summarize, transcribe, translate
from transept.errors import TranseptError, suggest

COMMANDS = (transcribe, summarize, translate, generate, plugins)  # in the order of --help


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns the exit code: 0 done, 1 a TranseptError (said on stderr), 130 interrupted, 141 nobody reads the output. Bad
    usage exits with 2.
    """
    arguments = _parser().parse_args(argv)
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except TranseptError as error:
        print(f"transept: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # where the interpreter flushes at its end
        return 141
    return code


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="transept", description="Run encoder/decoder transformers: Whisper, BART, T5 and more.")
    parser.add_argument("--version", action="version", version=f"transept {importlib.metadata.version('transept')}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_parser(commands)
    return parser


class _Parser(argparse.ArgumentParser):
    """An ArgumentParser that answers a misspelt command or choice with the nearest one (Python 3.14 can by itself)."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            raise argparse.ArgumentError(action, f'there is no "{value}".{suggest(str(value), known)}')
