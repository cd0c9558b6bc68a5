"""The layout of ``--help``, within the terminal's width. Used by the Parser."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Callable
from typing import Any


class HelpFormatter(argparse.HelpFormatter):
    """argparse's formatter, except that it never splits an option at a dash and lists no aliases."""

    def add_argument(self, action: argparse.Action) -> None:
        """Add an argument. Its width includes the indent of subcommands, unlike in argparse."""
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
        return "\n".join(indent + line for line in self._split_lines(text, width - len(indent)))


class PrintAndExit(argparse.Action):
    """An option such as ``--help-all``, which prints a text and exits. text: function that returns the text."""

    def __init__(self, text: Callable[[], str], **options: Any) -> None:
        super().__init__(**{**options, "dest": argparse.SUPPRESS, "default": argparse.SUPPRESS, "nargs": 0})
        self.text = text

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        """Print the text and exit."""
        parser._print_message(self.text(), sys.stdout)
        parser.exit()
