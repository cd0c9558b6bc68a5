"""escape: keep control characters of untrusted text from the terminal.

File names, transcripts and generated texts may contain any character. The command line escapes all that it prints, even
to a file, which a terminal may show later. In JSON, the escapes stand for the same text. Of files written with ``-o``,
JSON contains the exact text; the other formats have blanks for control characters.
"""

from __future__ import annotations

import contextlib
import logging
import re
import sys

# C0 except tab and line feed, DEL, C1; line and paragraph separators, overrides and isolates of direction; surrogates,
# which stand for undecodable bytes of a file name.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escape(text: object) -> str:
    r"""Return a text with control characters as JSON's escapes, such as ``\u001b``."""
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", str(text))


def escape_name(name: object) -> str:
    """Return a file's name, escaped and on one line."""
    return escape(name).replace("\n", "\\n").replace("\t", "\\t")


def print_stderr(text: object) -> None:
    """Write an escaped line to standard error, in one call, since other threads also write there. Ignores OSError."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{escape(text)}\n")
        sys.stderr.flush()


class EscapingFormatter(logging.Formatter):
    """Format a log record, escaped."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record."""
        return escape(super().format(record))


class CommandFormatter(EscapingFormatter):
    """Format a log record, escaped, after the prefix of the command's messages on stderr."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record. Messages of other libraries get no prefix."""
        is_ours = record.name.split(".")[0] == "transept"
        return f"transept: {super().format(record)}" if is_ours else super().format(record)
