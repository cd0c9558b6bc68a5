"""The command line, ``transept COMMAND ...``. A module declares and runs each command.

Its ``add_parser(commands)`` declares the arguments and sets the default ``run``, a function from the parsed arguments
to an exit code. To add a command, write the module and add it to `commands.COMMANDS`.

Only the given command's module is imported. The modules import torch and transformers inside ``run`` only.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import logging
import os
import sys
import time
from collections.abc import Sequence
from typing import TextIO

from transept.cli.commands import COMMANDS, TEXT_COMMANDS
from transept.cli.help_format import PrintAndExit
from transept.cli.parser import Parser, in_flags
from transept.cli.terminal import CommandFormatter, escape, print_stderr
from transept.errors import ParameterError, PromptError, TranseptError

INTERRUPTED = 130  # conventional exit code: 128 + SIGINT
BROKEN_PIPE = 141  # 128 + SIGPIPE


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command, and return its exit code.

    0: success. 1: a TranseptError, printed on stderr. 2, by SystemExit: bad usage, including a ParameterError.
    INTERRUPTED: after Ctrl-C. BROKEN_PIPE: the reader of the output has exited.
    """
    begin = time.perf_counter()
    if sys.stderr is None:
        sys.stderr = _null_stream(2)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # the encoding may lack characters of a name or a text
            if sys.platform == "win32" and not stream.isatty():
                stream.reconfigure(encoding="utf-8")  # a file's or pipe's would be the language's code page
    if logging.lastResort is not None:  # the handler of warnings if no logging is configured
        logging.lastResort.setFormatter(CommandFormatter())
    given = sys.argv[1:] if argv is None else argv
    arguments = _parser(given).parse_args(given)
    arguments.begin = begin  # so that reported times include imports and loading
    _warn_about_ignored_variables(arguments.parser)
    try:
        if sys.stdout is None:
            raise OSError(errno.EBADF, "standard output is closed; > /dev/null drops it")
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except ParameterError as error:
        arguments.parser.error(in_flags(error, arguments.parser))
    except PromptError as error:  # of an input; its message needs no class
        print_stderr(f"transept: {in_flags(error, arguments.parser)}")
        return 1
    except TranseptError as error:
        print_stderr(f"transept: {type(error).__name__}: {in_flags(error, arguments.parser)}")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output(sys.stdout.fileno())
        return BROKEN_PIPE
    except OSError as error:
        if error.filename is not None:
            raise
        print_stderr(f"transept: cannot write the output: {error.strerror or error}")  # to a full disk, for example
        _drop_output(1)
        return 1
    return code


def _warn_about_ignored_variables(command: Parser) -> None:
    if any(name.startswith("TRANSEPT_") for name in os.environ):
        from transept.serving.configuration import variables_without_effect

        for sentence in variables_without_effect(os.environ, serves=command.prog == "transept serve"):
            print_stderr(f"transept: {sentence}")


def _drop_output(number: int) -> None:
    """Drop further output to a file descriptor, so that the interpreter's flush at exit raises no second error."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)


def _null_stream(number: int) -> TextIO:
    """Return a stream that drops its text. It occupies a closed stream's descriptor, so that no other file gets it."""
    opened = os.open(os.devnull, os.O_WRONLY)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)
    return open(number, "w", closefd=False)


def _version() -> str:
    from transept.cli.env import version_line

    return f"{escape(version_line())}\n"


def _parser(given: Sequence[str] | None = None) -> Parser:
    """Return the parser of all commands.

    given: the arguments to parse. Only their command's options are declared; None: the options of all commands.
    """
    parser = Parser(prog="transept", description="Run encoder/decoder transformers: Whisper, BART, T5 and more.")
    parser.add_argument("--version", action=PrintAndExit, text=_version, help="show the version and the environment")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    named = None if given is None else next((each for each in given if not each.startswith("-")), None)
    for name, about in COMMANDS.items():
        if given is not None and name != named:
            commands.add_parser(name, help=about)
        elif name in TEXT_COMMANDS:
            importlib.import_module(f"{__name__}.documents").add_parser(commands, name)
        else:
            importlib.import_module(f"{__name__}.{name.replace('-', '_')}").add_parser(commands)
    parser.set_defaults(parser=parser)  # for commands that set none
    return parser
