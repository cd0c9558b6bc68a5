"""Parser: argparse's ArgumentParser with suggestions for mistyped commands and options. Every command uses it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from transept.cli.flags import assigned, flag
from transept.cli.help_format import HelpAll, HelpFormatter
from transept.cli.terminal import escape
from transept.errors import TranseptError, suggest
from transept.option_names import hint

TRUTHS = ("True", "False")  # values of a flag in openai-whisper's command


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that answers a misspelt command, choice or option with the nearest one.

    Options may be written with underscores in place of dashes, and a flag may be followed by True or False.
    most_used: the options that ``--help`` shows, in this order; ``--help-all`` shows all. None: no ``--help-all``.
    """

    def __init__(self, *args: Any, most_used: Sequence[str] | None = None, **options: Any) -> None:
        super().__init__(*args, **{"formatter_class": HelpFormatter, **options})
        self._most_used = most_used
        if most_used is not None:
            self.add_argument("--help-all", action=HelpAll, help="show all options, by what they are about")

    def format_help(self) -> str:
        """Return the page of ``--help``."""
        if self._most_used is None:
            return super().format_help()
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        options = [self._option_string_actions[flag] for flag in (*self._most_used, "--help-all", "--help")]
        for title, actions in (
            (self._positionals.title, self._positionals._group_actions),
            ("most used options", options),
        ):
            formatter.start_section(title)
            formatter.add_arguments(actions)
            formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()

    def format_whole_help(self) -> str:
        """Return the page of ``--help-all``."""
        return super().format_help()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does, but report unknown options as errors, and before missing arguments."""
        args = sys.argv[1:] if args is None else list(args)
        has_commands = self._subparsers is not None
        args = [*self._respelt(args, before_command=has_commands)]
        for name in _options(args, before_command=has_commands):
            if name not in self._option_string_actions and not self._get_option_tuples(name):
                self.error(f"there is no option {name}.{self._hint(name)}")
        self._refuse_given_twice(args, before_command=has_commands)
        if not has_commands:
            self._refuse_of_one_dash(args)
        known, others = super().parse_known_args(args, namespace)
        if not has_commands and "--" not in others:
            others = self._put_with_its_like(known, others)
        if others and not has_commands:
            self.error(f"this has no meaning here: {' '.join(others)}. See {self.prog} --help.")
        return known, others

    def _refuse_given_twice(self, args: Sequence[str], *, before_command: bool) -> None:
        """Report an option that is given by two of its names."""
        by: dict[str, argparse.Action] = {}
        for name in _options(args, before_command=before_command):
            action = self._option_string_actions.get(name)
            if action is not None and by.setdefault(action.dest, action) is not action:
                other = next(each for each in by[action.dest].option_strings if each.startswith("--"))
                self.error(f"{other} and {name} are the same option: give one of them")

    def _put_with_its_like(self, known: Any, others: list[str]) -> list[str]:
        """Append arguments after an option to the list before it, as in ``one.wav --model tiny two.wav``."""
        last = next(reversed(self._get_positional_actions()), None)
        if not others or last is None or last.nargs not in ("*", "+"):
            return others
        try:
            more = [self._get_value(last, each) for each in others]
        except argparse.ArgumentError as error:
            self.error(str(error))
        setattr(known, last.dest, [*(getattr(known, last.dest) or ()), *more])
        return []

    def _refuse_of_one_dash(self, args: Sequence[str]) -> None:
        """Report other programs' short options, such as -m and -osrt, and files whose names begin with a dash."""
        for arg in args:
            if arg == "--":
                return
            if arg in self._option_string_actions or not arg.startswith("-") or arg.startswith("--"):
                continue
            from transept.foreign_options import ELSEWHERE, SENTENCES

            if arg in ELSEWHERE or (arg, "") in SENTENCES:
                self.error(f"there is no option {arg}.{hint(arg, *self._flags()) or f' See {self.prog} --help.'}")
            if arg != "-" and os.path.isfile(arg):
                self.error(f"{arg} would be an option; write ./{arg} for the file of that name")

    def _respelt(self, args: Sequence[str], *, before_command: bool) -> Iterator[str]:
        """Yield the arguments with dashes in option names, and with flags that need no True or False after them."""
        rest = list(args)
        while rest:
            arg = rest.pop(0)
            name, equals, value = arg.partition("=")
            if arg == "--" or (before_command and not arg.startswith("-")):
                yield from (arg, *rest)
                return
            if not name.startswith("--") or " " in name:  # with a blank it is some option's text
                yield arg
                continue
            spelt = name
            if name not in self._option_string_actions:
                dashed = f"--{name[2:].replace('_', '-')}"
                name = dashed if dashed in self._option_string_actions else name
            action = self._option_string_actions.get(name)
            if not isinstance(action, argparse._StoreTrueAction | argparse.BooleanOptionalAction):
                yield name + equals + value
                continue
            # With an underscore it is openai-whisper's option, whose value must not be taken for a file.
            if not equals and rest and (rest[0] in TRUTHS or ("_" in spelt and not rest[0].startswith("-"))):
                equals, value = "=", rest.pop(0)
            if equals and value not in TRUTHS:
                self.error(f"argument {spelt}: must be True or False, not {value!r}")
            if value != "False":
                yield name
            elif isinstance(action, argparse.BooleanOptionalAction):
                yield next(
                    each for each in action.option_strings if each.startswith("--no-") != name.startswith("--no-")
                )

    def _print_message(self, message: str, file: Any = None) -> None:
        super()._print_message(escape(message), file)

    def _hint(self, name: str) -> str:
        return hint(name[2:].replace("-", "_"), *self._flags()) or f" See {self.prog} --help."

    def _flags(self) -> tuple[dict[str, str], Callable[[str], str]]:
        """Return the options' names as Python writes them, and a function from such a name to its flag."""
        main: dict[str, str] = {}  # the first flag of each action, which is not an alias
        plain: dict[str, str] = {}
        for action in self._actions:
            for each in action.option_strings:
                if each.startswith("--"):
                    is_off = each.startswith("--no-")
                    shown = each if is_off else main.setdefault(action.dest, each)
                    plain.setdefault(each[2:].replace("-", "_"), shown)
        return plain, plain.__getitem__

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            raise argparse.ArgumentError(action, f'there is no "{value}".{suggest(str(value), known)}')


def _options(args: Sequence[str], *, before_command: bool) -> Iterator[str]:
    """Yield the option names among the arguments, up to ``--``, or up to the command."""
    for arg in args:
        if arg == "--" or (before_command and not arg.startswith("-")):
            return
        name = arg.partition("=")[0]
        if name.startswith("--") and " " not in name:  # with a blank it is some option's text
            yield name


def _flag(parser: argparse.ArgumentParser, name: str) -> str | None:
    """Return the flag of a Python option: ``--vad-threshold`` for ``vad_options.threshold``; None if it has none."""
    alias = parser._option_string_actions.get(flag(name))
    for dest in (name, name.replace("_options.", "_"), name.rpartition(".")[2], alias and alias.dest):
        flags = (each for action in parser._actions if action.dest == dest for each in action.option_strings)
        if found := next((each for each in flags if each.startswith("--")), None):
            return found
    return None


def in_flags(error: TranseptError, parser: argparse.ArgumentParser) -> str:
    """Return an error's message with the parser's flags, ``--patience 2``, and other options in Python's spelling."""

    def with_value(name: str, value: Any) -> str:
        called = _flag(parser, name)
        if called is None:
            return f"{name}={value!r}"
        if value is False and f"--no-{called[2:]}" not in parser._option_string_actions:
            return f"{called} False"
        return assigned(name, value, called)

    return error.spelt(lambda name: _flag(parser, name) or name, with_value)
