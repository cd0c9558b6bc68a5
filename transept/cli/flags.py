"""Command-line flags, made from declared options (`transept.options`)."""

from __future__ import annotations

import argparse
from argparse import BooleanOptionalAction
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from transept.errors import ParameterError
from transept.option_names import Alias
from transept.options import DeclaredOption, Option, written


def flag(name: str) -> str:
    """Return the flag of an option: ``--beam-size``, and ``--vad-threshold`` of ``vad_options.threshold``."""
    return f"--{name.replace('_options.', '_').replace('_', '-')}"


def assigned(name: str, value: Any, called: str = "") -> str:
    """Return an option with its value as on the command line: ``--beam-size 5``, ``--vad``, ``--no-fp16``.

    called: its flag, if that differs from ``flag(name)``.
    """
    called = called or flag(name)
    if isinstance(value, bool):
        return called if value else f"--no-{called[2:]}"
    if isinstance(value, tuple):
        value = ",".join(map(str, value))
    return f"{called}{'=' if ' ' in called else ' '}{value}"


def add_flags(
    parser: argparse.ArgumentParser, title: str, about: str | None, options: Iterable[DeclaredOption]
) -> None:
    """Declare the flags of one group. The parsed namespace lacks flags that are not given."""
    group = parser.add_argument_group(title, about)
    for each in options:
        add_flag(group, each)


def add_flag(parser: argparse._ActionsContainer, each: DeclaredOption, default: Any = argparse.SUPPRESS) -> None:
    """Declare the flags of an option and of its aliases. ``--help`` omits aliases and options without a help text.

    default: value if the flag is not given; by default the namespace then lacks it. An alias with separate values is in
    the namespace under its own name.
    """
    name = flag(written(each))
    _add(parser, name, each, each.name, default, _help(each) if each.option.help else argparse.SUPPRESS)
    for alias in (Alias(each.name), *each.aliases):
        theirs = flag(alias.name)
        if theirs in parser._option_string_actions:
            continue
        if alias.convert is not None:
            metavar, shown = alias.name.rpartition("_")[2].upper(), alias.help or argparse.SUPPRESS
            read = _reading_files(alias.convert)
            parser.add_argument(
                theirs, dest=each.name, type=read, metavar=metavar, default=argparse.SUPPRESS, help=shown
            )
        elif alias.values is None:
            _add(parser, theirs, each, each.name, argparse.SUPPRESS, argparse.SUPPRESS)
        else:
            kind = bool if True in alias.values else str
            own = DeclaredOption(alias.name, Option(""), (kind,), tuple(map(str, alias.values)), True, None)
            _add(parser, theirs, own, alias.name, argparse.SUPPRESS, argparse.SUPPRESS)


def _add(
    parser: argparse._ActionsContainer, name: str, each: DeclaredOption, dest: str, default: Any, help: str
) -> None:
    shared: dict[str, Any] = {"dest": dest, "default": default, "help": help}
    several = each.option.repeats or each.types == (Mapping,)
    if several or (tuple in each.types and each.option.parse is None):
        parser.add_argument(name, action="append", metavar=each.option.metavar, **shared)
    elif not each.is_flag:
        parser.add_argument(name, type=_parser_of(each), metavar=each.option.metavar, **shared)
    elif each.default is True or each.optional:
        parser.add_argument(name, action=BooleanOptionalAction, **shared)
    else:
        parser.add_argument(name, action="store_true", **shared)


def _reading_files(convert: Callable[[Any], Any]) -> Callable[[str], Any]:
    """Return a function that converts a text, or with ``@FILE`` the text of that file."""

    def read(text: str) -> Any:
        if not text.startswith("@"):
            return convert(text)
        try:
            return convert(Path(text[1:]).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise argparse.ArgumentTypeError(f"cannot read {text[1:]}: {error}") from None

    return read


def _help(each: DeclaredOption) -> str:
    """Return the line of ``--help``. It shows the default, unless that is empty or None, or the flag takes no value."""
    default = each.option.default
    if default is None and not each.is_flag and each.default is not None:
        default = f"{each.default:g}" if isinstance(each.default, float) else str(each.default or "")
    return f"{each.option.help} (default: {default})" if default else each.option.help


def _parser_of(each: DeclaredOption) -> Callable[[str], Any]:
    """Return the function that argparse calls to parse a value."""

    def parse(text: str) -> Any:
        try:
            value = each.from_text(text)
            return each.taken(value) if each.choices else value
        except ParameterError as error:  # argparse puts the flag before it
            raise argparse.ArgumentTypeError(error.spelt(lambda _: "", assigned).strip()) from None

    return parse
