"""Flags: options as they are declared (`transept.options`), on the command line."""

from __future__ import annotations

import argparse
from argparse import BooleanOptionalAction
from collections.abc import Callable, Iterable
from typing import Any

from transept.errors import ParameterError
from transept.options import DeclaredOption, Option


def flag(name: str) -> str:
    """Return the flag of an option: ``--beam-size``, and ``--vad-threshold`` of ``vad_options.threshold``."""
    return f"--{name.replace('_options.', '_').replace('_', '-')}"


def assigned(name: str, value: Any) -> str:
    """Return an option with its value as it is written in a command: ``--beam-size 5``, ``--vad``, ``--no-fp16``."""
    if isinstance(value, bool):
        return flag(name) if value else f"--no-{flag(name)[2:]}"
    if isinstance(value, tuple):
        value = ",".join(map(str, value))
    return f"{flag(name)} {value}"


def named(name: str, kind: type, help: str, metavar: str = "") -> DeclaredOption:
    """Return an option of a command alone. kind: bool for one without a value."""
    return DeclaredOption(name, Option(help, metavar=metavar), (kind,), (), kind is not bool, None)


def add_flags(
    parser: argparse.ArgumentParser, title: str, about: str | None, options: Iterable[DeclaredOption]
) -> None:
    """Declare the flags of one group. What is not given is not in the parsed namespace."""
    group = parser.add_argument_group(title, about)
    for each in options:
        shared: dict[str, Any] = {"dest": each.name, "default": argparse.SUPPRESS, "help": _help(each)}
        if not each.is_flag:
            group.add_argument(flag(each.name), type=_parser_of(each), metavar=each.option.metavar, **shared)
        elif each.default is True or each.optional:
            group.add_argument(flag(each.name), action=BooleanOptionalAction, **shared)
        else:
            group.add_argument(flag(each.name), action="store_true", **shared)


def _help(each: DeclaredOption) -> str:
    """The line of ``--help``, with the default if that says more than "none" and "off"."""
    default = each.option.default
    if default is None and not each.is_flag and each.default is not None:
        default = f"{each.default:g}" if isinstance(each.default, int | float) else str(each.default)
    return f"{each.option.help} (default: {default})" if default else each.option.help


def _parser_of(each: DeclaredOption) -> Callable[[str], Any]:
    """Return what argparse calls with the text of a value."""

    def parse(text: str) -> Any:
        try:
            value = each.from_text(text)
            return each.taken(value) if each.choices else value
        except ParameterError as error:  # argparse puts the flag before it
            raise argparse.ArgumentTypeError(error.spelt(lambda _: "", assigned).strip()) from None

    return parse
