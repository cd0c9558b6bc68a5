"""A hook of MkDocs: what a page links to outside this folder, such as an example, is named on the site, not linked.

The same pages are read in the repository, where these links lead to files that the site does not have.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

LINK = re.compile(r"\[([^\]]*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Called by MkDocs with the text of each page."""
    folder = posixpath.dirname(page.file.src_uri)

    def named(match: re.Match[str]) -> str:
        file = posixpath.normpath(posixpath.join("docs", folder, match[2]))
        return match[0] if file.startswith("docs/") else f"{match[1]} (`{file}`)"

    return LINK.sub(named, markdown)
