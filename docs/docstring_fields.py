"""An extension of Griffe: fields and parameters that a docstring describes, one a line, become a list on the site.

Docstrings have lines such as ``table: [num_buckets, num_heads].``, which Markdown would join to one paragraph.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

FIELD = re.compile(r"^((?:[A-Za-z_]\w*(?:\[\w\])?(?:\([^)\n]*\))?)(?:, [A-Za-z_]\w*(?:\[\w\])?)*): (?=\S)")
NO_FIELD = ("Returns", "Raises", "Note", "Example", "Yields")


def with_lists(docstring: str) -> str:
    """Return a docstring whose fields are items of Markdown lists."""
    lines: list[str] = []
    in_code = in_list = False
    for line in docstring.splitlines():
        in_code = in_code != line.startswith("```")
        field = None if in_code else FIELD.match(line)
        if field and field[1] not in NO_FIELD:
            if not in_list and lines and lines[-1]:
                lines.append("")
            lines.append(f"- `{field[1]}`: {line[field.end() :]}")
            in_list = True
            continue
        if in_list and line.startswith(NO_FIELD):
            lines.append("")
        in_list = in_list and bool(line) and not line.startswith(NO_FIELD)
        lines.append(line)
    return "\n".join(lines)


class DocstringFields(griffe.Extension):
    """Applies `with_lists` to every docstring."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called by Griffe with each module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = with_lists(obj.docstring.value)
