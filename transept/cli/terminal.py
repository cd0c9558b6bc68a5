"""printable: what the command line writes cannot steer the terminal that shows it.

File names, transcripts and what models write come from anywhere. Every print of the command line goes through here,
wherever its output goes: a file that holds it is shown on a terminal some day. In JSON the escapes stand for the same
text, so a program reads it exactly; files written with ``-o`` hold it exactly, too.
"""

from __future__ import annotations

import contextlib
import logging
import re
import sys

# C0 but for tab and line feed, DEL, C1; line and paragraph separators, overrides and isolates of direction; surrogates,
# which stand for bytes of a file name that are no characters.
_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escape(text: object) -> str:
    r"""The text with each character that steers a terminal as its escape in JSON, such as ``\u001b``."""
    return _STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", str(text))


def escape_name(name: object) -> str:
    """A file's name, printable and on one line."""
    return escape(name).replace("\n", "\\n").replace("\t", "\\t")


def print_stderr(text: object) -> None:
    """Write a line to standard error, printable and in one piece: other threads write there, too.

    Where it cannot be written nothing is: no work ends because nobody can be told of it.
    """
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{escape(text)}\n")
        sys.stderr.flush()


class EscapingFormatter(logging.Formatter):
    """The message of a log record, printable."""

    def format(self, record: logging.LogRecord) -> str:
        """As logging's."""
        return escape(super().format(record))


class CommandFormatter(EscapingFormatter):
    """A printable message, after the prefix that all problems on the command's stderr have."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record. Messages of other libraries get no prefix."""
        is_ours = record.name.split(".")[0] == "transept"
        return f"transept: {super().format(record)}" if is_ours else super().format(record)
