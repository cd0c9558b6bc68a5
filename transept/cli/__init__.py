"""The command line, ``transept COMMAND ...``: one module for each command, each with one function for each subcommand.

A command module has ``add_parser(commands)``, which declares the arguments and sets the default ``run``, a function
from the parsed arguments to an exit code. To add a command, write the module and name it in `COMMANDS`.

Nothing heavy is imported here or in the head of a command's module: torch and transformers load inside ``run``.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import io
import logging
import os
import sys
import time
from collections.abc import Sequence
from typing import TextIO

from transept.cli import (
    align,
    batch,
    calibrate,
    env,
    generate,
    models,
    plugins,
    read,
    serve,
    summarize,
    transcribe,
    translate,
)
from transept.cli.parser import Parser, in_flags
from transept.cli.printable import CommandFormatter, tell
from transept.errors import ParameterError, TranseptError

INTERRUPTED = 130  # the exit code by convention: 128 + SIGINT
COMMANDS = (
    transcribe,
    align,
    calibrate,
    summarize,
    translate,
    generate,
    read,
    batch,
    serve,
    models,
    plugins,
    env,
)  # in the order of --help


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
    arguments = _parser().parse_args(argv)
    arguments.begin = begin  # what reports times counts imports and loading from here on
    try:
        if sys.stdout is None:
            raise OSError(errno.EBADF, "standard output is closed; > /dev/null drops it")
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except ParameterError as error:
        arguments.parser.error(in_flags(error, arguments.parser))
    except TranseptError as error:
        text = in_flags(error, arguments.parser) if "parser" in arguments else str(error)
        tell(f"transept: {type(error).__name__}: {text}")
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
        tell(f"transept: cannot write the output: {error.strerror or error}")
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


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="transept", description="Run encoder/decoder transformers: Whisper, BART, T5 and more.")
    parser.add_argument("--version", action=env.VersionAction, help="say the version, and what it runs on")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_parser(commands)
    parser.set_defaults(parser=parser)  # where the command names none of its own
    return parser
