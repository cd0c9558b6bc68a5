"""The command line, ``transept COMMAND ...``: one module for each command, each with one function for each subcommand.

A command module has ``add_parser(commands)``, which declares the arguments and sets the default ``run``, a function
from the parsed arguments to an exit code. To add a command, write the module and name it in `commands.COMMANDS`.

Only the module of the command that is given is imported, and nothing heavy in its head: torch and transformers load
inside ``run``.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib
import io
import logging
import os
import sys
import time
from collections.abc import Sequence
from typing import Any, TextIO

from transept.cli.commands import COMMANDS
from transept.cli.parser import Parser, in_flags
from transept.cli.terminal import CommandFormatter, escape, print_stderr
from transept.errors import ParameterError, TranseptError

INTERRUPTED = 130  # the exit code by convention: 128 + SIGINT


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns the exit code: 0 done, 1 a TranseptError (said on stderr), INTERRUPTED, 141 nobody reads the output. Bad
    usage, a ParameterError included, exits with 2.
    """
    begin = time.perf_counter()
    if sys.stderr is None:
        sys.stderr = _nowhere(2)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name or a script that it has no bytes for stops nothing
    if logging.lastResort is not None:  # which writes warnings to stderr where nobody has set up logging
        logging.lastResort.setFormatter(CommandFormatter())
    given = sys.argv[1:] if argv is None else argv
    arguments = _parser(given).parse_args(given)
    arguments.begin = begin  # what reports times counts imports and loading from here on
    try:
        if sys.stdout is None:
            raise OSError(errno.EBADF, "standard output is closed; > /dev/null drops it")
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except ParameterError as error:
        arguments.parser.error(in_flags(error, arguments.parser))
    except TranseptError as error:
        print_stderr(f"transept: {type(error).__name__}: {in_flags(error, arguments.parser)}")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # where the interpreter flushes at its end
        return 141
    except OSError as error:
        if error.filename is not None:
            raise
        # of standard output: a full disk, say
        print_stderr(f"transept: cannot write the output: {error.strerror or error}")
        with contextlib.suppress(OSError):  # no second error where the interpreter flushes at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    return code


def _nowhere(number: int) -> TextIO:
    """A stream that drops what is written, in place of the closed one with this number: no file may get that."""
    opened = os.open(os.devnull, os.O_WRONLY)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)
    return open(number, "w", closefd=False)


class _VersionAction(argparse.Action):
    """Prints what `env.version_line` returns and ends the program."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest=argparse.SUPPRESS, default=argparse.SUPPRESS, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        """Print the version and exit."""
        from transept.cli.env import version_line

        print(escape(version_line()))
        parser.exit()


def _parser(given: Sequence[str] | None = None) -> Parser:
    """Return the parser of all commands.

    given: the arguments to parse. Only the options of their command are declared; None: those of all commands.
    """
    parser = Parser(prog="transept", description="Run encoder/decoder transformers: Whisper, BART, T5 and more.")
    parser.add_argument("--version", action=_VersionAction, help="show the version and the environment")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    named = None if given is None else next((each for each in given if not each.startswith("-")), None)
    for name, about in COMMANDS.items():
        if given is None or name == named:
            importlib.import_module(f"{__name__}.{name}").add_parser(commands)
        else:
            commands.add_parser(name, help=about)
    parser.set_defaults(parser=parser)  # where the command names none of its own
    return parser
