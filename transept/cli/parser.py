"""Parser: argparse's ArgumentParser with suggestions for mistyped commands and options. Every command uses it."""

from __future__ import annotations

import argparse
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from transept.cli.flags import assigned, flag
from transept.cli.help_format import HelpFormatter, PrintAndExit
from transept.cli.terminal import escape
from transept.errors import TranseptError, suggest
from transept.option_names import hint
from transept.options import declared

NEGATIVE_NUMBER = re.compile(r"-(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?$")
NAMED = (
    "FILE",
    "DIR",
    "FOLDER",
    "IN",
    "OUT",
    "AUDIO",
    "RECORDING",
    "INPUT",
    "DOCUMENTS",
    "TARGETS",
)  # values that name files
LISTED = ("KIND,KIND,...", "NAME,...", "A=B,...", "TERM,...")  # values that need an entry
TRUTHS = ("true", "false")  # values of a flag in openai-whisper's command, in any case


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that answers a misspelt command, choice or option with the nearest one.

    Option names may have underscores in place of dashes, and a flag may be followed by True or False.
    most_used: the options that ``--help`` shows, in this order; ``--help-all`` shows all. None: no ``--help-all``.
    """

    def __init__(self, *args: Any, most_used: Sequence[str] | None = None, **options: Any) -> None:
        super().__init__(*args, **{"formatter_class": HelpFormatter, "allow_abbrev": False, **options})
        self._negative_number_matcher = NEGATIVE_NUMBER  # argparse's knows no exponent
        self._most_used = most_used
        self.given: dict[str, str] = {}  # option -> the name that the user wrote
        if most_used is not None:
            about = "show all options, by group"
            self.add_argument("--help-all", action=PrintAndExit, text=self.format_whole_help, help=about)

    def format_help(self) -> str:
        """Return the page of ``--help``."""
        if self._most_used is None:
            return super().format_help()
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        options = [self._option_string_actions[flag] for flag in (*self._most_used, "--help-all", "--help")]
        positionals = self._positionals
        for title, actions in ((positionals.title, positionals._group_actions), ("most used options", options)):
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
        own = [*itertools.takewhile(lambda arg: arg != "--" and (arg.startswith("-") or not has_commands), args)]
        rest = args[len(own) :]
        own = [*self._respelt(own)]
        self._refuse_unknown_and_repeated([arg.partition("=")[0] for arg in own if _is_option(arg)])
        if not has_commands:
            self._refuse_single_dashes(own)
        known, others = super().parse_known_args([*own, *rest], namespace)
        if not has_commands and "--" not in others:
            others = self._append_to_list(known, others)
        if others and not has_commands:
            self.error(f"unexpected arguments: {' '.join(others)}. See {self.prog} --help.")
        return known, others

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """Parse a value as argparse does, but refuse an empty name or list, as of an unset variable in a script."""
        if action.metavar in (*NAMED, *LISTED) and not arg_string.strip(" ,"):
            wanted = "name a file or folder" if action.metavar in NAMED else f"have an entry: {action.metavar}"
            raise argparse.ArgumentError(action, f"{arg_string!r} is empty; it must {wanted}")
        return super()._get_value(action, arg_string)

    def _refuse_unknown_and_repeated(self, names: Sequence[str]) -> None:
        """Report an unknown option, and an option that is given by two of its names."""
        for name in names:
            if name not in self._option_string_actions and not self._get_option_tuples(name):
                self.error(f"there is no option {name}.{self._hint(name)}")
        first: dict[str, argparse.Action] = {}
        for name in names:
            action = self._option_string_actions.get(name)
            if action is not None and first.setdefault(action.dest, action) is not action:
                other = next(each for each in first[action.dest].option_strings if each.startswith("--"))
                self.error(f"{other} and {name} are the same option: give one of them")

    def _append_to_list(self, known: Any, others: list[str]) -> list[str]:
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

    def _refuse_single_dashes(self, args: Sequence[str]) -> None:
        """Report other programs' short options, such as -m and -osrt, and files whose names begin with a dash."""
        for arg in args:
            if arg in self._option_string_actions or not arg.startswith("-") or arg.startswith("--"):
                continue
            from transept.foreign_options import ELSEWHERE, SENTENCES

            if arg in ELSEWHERE or (arg, "") in SENTENCES:
                self.error(f"there is no option {arg}.{hint(arg, *self._flags()) or f' See {self.prog} --help.'}")
            if arg != "-" and os.path.isfile(arg):
                self.error(f"{arg} would be an option; write ./{arg} for the file of that name")

    def _respelt(self, args: Sequence[str]) -> Iterator[str]:
        """Yield the arguments with dashes in option names, and with flags that need no True or False after them."""
        rest = list(args)
        while rest:
            arg = rest.pop(0)
            if not _is_option(arg):
                yield arg
                continue
            spelt, equals, value = arg.partition("=")
            name = self._dashed(spelt)
            action = self._option_string_actions.get(name)
            is_off = action is None or isinstance(action, argparse.BooleanOptionalAction)
            positive = self._dashed(f"--{name[5:]}") if is_off and name.startswith("--no-") else name
            if action is None and isinstance(self._option_string_actions.get(positive), argparse._StoreTrueAction):
                continue  # such a flag is off unless it is given
            if action is not None:
                self.given[action.dest] = positive
            if not isinstance(action, argparse._StoreTrueAction | argparse.BooleanOptionalAction):
                yield name + equals + value
                continue
            if not equals and rest and self._is_value_of_flag(rest[0], spelt):
                equals, value = "=", rest.pop(0)
            if equals and value.lower() not in TRUTHS:
                self.error(f"argument {name}: must be True or False, not {value!r}")
            if value.lower() != "false":
                yield name
            elif isinstance(action, argparse.BooleanOptionalAction):
                yield positive if positive != name else f"--no-{name[2:]}"

    def _dashed(self, name: str) -> str:
        dashed = f"--{name[2:].replace('_', '-')}"
        return dashed if name not in self._option_string_actions and dashed in self._option_string_actions else name

    def _is_value_of_flag(self, word: str, flag: str) -> bool:
        """Return True if a word after a flag is its value: True, False, or a word where a file is expected.

        With an underscore the flag is openai-whisper's, which always has a value.
        """
        if word.lower() in TRUTHS or ("_" in flag and not word.startswith("-")):
            return True
        takes_files = any(action.metavar == "FILE" for action in self._get_positional_actions())
        return takes_files and word.isalpha() and not os.path.exists(word)

    def _print_message(self, message: str, file: Any = None) -> None:
        super()._print_message(escape(message), file)

    def _hint(self, name: str) -> str:
        plain = name[2:].replace("-", "_")
        for action in self._get_positional_actions():
            if plain in (action.dest, action.dest.removesuffix("s")):
                return f" {action.metavar} is written without an option before it. See {self.prog} --help."
        if found := self._without_flag(plain) or hint(plain, *self._flags()):
            return found
        from transept.foreign_options import ELSEWHERE

        meant = ((ours, self._without_flag(ours)) for ours in ELSEWHERE.get(plain, ()))
        return next((f" Here that is {ours}.{told}" for ours, told in meant if told), f" See {self.prog} --help.")

    def _without_flag(self, name: str) -> str:
        """Return a sentence about how to set an option that has no flag; empty for an unknown name."""
        from transept.core.config import EngineConfig
        from transept.core.request.sampling_params import SamplingParams

        if name == "model":  # some commands have none
            return ""
        if name in declared(EngineConfig) and "--config" in self._option_string_actions:
            return f" Set {name} under [engine] in the file of --config, or TRANSEPT_{name.upper()}."
        has_texts = any(action.dest == "num_beams" for action in self._actions)
        for kind in (EngineConfig, *([SamplingParams] if has_texts else [])):
            if name in declared(kind):
                return f" No flag sets it: in Python it is an option of {kind.__name__}. See {self.prog} --help."
        return ""

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


def _is_option(arg: str) -> bool:
    return arg.startswith("--") and " " not in arg.partition("=")[0]  # with a blank it is an option's text


def _flag(parser: Parser, name: str) -> str | None:
    """Return the flag of a Python option, or None. With aliases, return the one that the user wrote.

    ``vad_options.threshold`` is ``--vad-threshold``, or ``--vad-options threshold`` if that flag is given.
    """
    alias = parser._option_string_actions.get(flag(name))
    whole, _, part = name.partition(".")
    dests = (name, name.replace("_options.", "_"), name.removeprefix("limits."), alias and alias.dest)
    if found := next((parser.given[dest] for dest in dests if dest in parser.given), None):
        return found
    if part and whole in parser.given:
        return f"{parser.given[whole]} {part}"
    for dest in dests:
        flags = (each for action in parser._actions if action.dest == dest for each in action.option_strings)
        if found := next((each for each in flags if each.startswith("--")), None):
            return found
    return None


def in_flags(error: TranseptError, parser: Parser) -> str:
    """Return an error's message with the parser's flags, ``--patience 2``, and other options in Python's spelling."""

    def with_value(name: str, value: Any) -> str:
        called = _flag(parser, name)
        if called is None:
            return f"{name}={value!r}"
        if value is False and f"--no-{called[2:]}" not in parser._option_string_actions:
            return f"{called} False"
        return assigned(name, value, called)

    return error.spelt(lambda name: _flag(parser, name) or name, with_value)
