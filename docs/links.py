"""A hook of MkDocs: one text serves the repository, a package index and the site.

- A link to a file outside this folder, such as an example, leads to the repository.
- An absolute link or picture of README.md that names a page of this folder becomes a link within the site.
- ``<!-- README.md: Heading -->`` in a page is replaced by that section of README.md.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
REPOSITORY = "https://github.com/transept/transept"
LINK = re.compile(r"\[([^\]]*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")
OWN = re.compile(
    r"https://(?:github\.com/transept/transept/blob|raw\.githubusercontent\.com/transept/transept)/main/docs/"
)
SECTION = re.compile(r"<!-- README\.md: (.+) -->")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Called by MkDocs with the text of each page."""
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def outside(match: re.Match[str]) -> str:
        file = posixpath.normpath(posixpath.join(folder, match[2]))
        if file.startswith("docs/"):
            return match[0]
        kind = "tree" if (ROOT / file).is_dir() else "blob"
        return f"[{match[1]}]({REPOSITORY}/{kind}/main/{file}{match[3] or ''})"

    markdown = SECTION.sub(lambda match: section(match[1]), markdown)
    return LINK.sub(outside, OWN.sub("", markdown))


def section(heading: str) -> str:
    """Return a section of README.md with its heading."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(heading)}\n.*?(?=^## |\Z)", text, re.M | re.S)
    if found is None:
        raise ValueError(f"README.md has no section {heading!r}")
    return found[0].rstrip() + "\n"
