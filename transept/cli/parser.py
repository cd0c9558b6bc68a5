"""Parser: argparse's, with the answers that users of a mistyped command want. Every command's parser is one."""

from __future__ import annotations

import argparse
import difflib
import re
from typing import Any

from transept.errors import suggest


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that answers a misspelt command, choice or option with the nearest one."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse's, but for an option that it does not know, which is an error of this parser."""
        known, others = super().parse_known_args(args, namespace)
        for name in (other.partition("=")[0] for other in others if other.startswith("--")):
            near = difflib.get_close_matches(name, self._flags(), n=1)
            self.error(
                f"there is no option {name}. {f'Did you mean {near[0]}?' if near else f'See {self.prog} --help.'}"
            )
        return known, others

    def _flags(self) -> list[str]:
        """Those that --help shows."""
        shown = (action.option_strings for action in self._actions if action.help != argparse.SUPPRESS)
        return [flag for flags in shown for flag in flags]

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            raise argparse.ArgumentError(action, f'there is no "{value}".{suggest(str(value), known)}')


def in_flags(message: str, parser: argparse.ArgumentParser) -> str:
    """A message about Python's options, with those that the parser has written as its flags: ``--patience 2``.

    A name that is an English word, too, is taken for an option only where a value follows, as in ``patience=2``.
    """
    for action in parser._actions:
        flag = next((flag for flag in action.option_strings if flag.startswith("--")), None)
        if flag is not None:
            name = rf"(?<![\w-]){action.dest}"
            message = re.sub(rf"{name}=True\b", flag, message)
            message = re.sub(f"{name}=", f"{flag} ", message)
            if "_" in action.dest:
                message = re.sub(rf"{name}\b", flag, message)
    return message
