"""How ``--help`` is laid out: within the terminal's width, and for a command of many options the most used ones first.

Used by the Parser alone.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Sequence
from typing import Any


class HelpFormatter(argparse.HelpFormatter):
    """argparse's, but no option's name is broken at its dashes, and an option of two names has its value once."""

    def add_argument(self, action: argparse.Action) -> None:
        """As argparse's, which takes the names of subcommands for shorter than they are shown."""
        super().add_argument(action)
        if action.help is not argparse.SUPPRESS:
            for each in self._iter_indented_subactions(action):
                length = len(self._format_action_invocation(each)) + self._current_indent
                self._action_max_length = max(self._action_max_length, length)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        names = [each for each in action.option_strings if not each.startswith("--")]
        main = [each for each in action.option_strings if each.startswith("--")][:1]  # the others are aliases
        return f"{', '.join(names + main)} {value}"

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return textwrap.fill(
            " ".join(text.split()), width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
        )


class HelpAll(argparse.Action):
    """``--help-all``: prints what ``--help`` does, and the options that it leaves out."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest=argparse.SUPPRESS, default=argparse.SUPPRESS, nargs=0, help=help)

    def __call__(self, parser: Any, *_: Any) -> None:
        """As argparse's action for help."""
        parser._print_message(parser.format_whole_help(), sys.stdout)
        parser.exit()
