"""Prints what the extra `dev` needs, a line each, for pip, which has no option for all but the package itself."""

import re
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]


def needs(extra: str) -> list[str]:
    """The requirements of an extra, with those of the extras that it names."""
    found = []
    for requirement in project["optional-dependencies"][extra]:
        own = re.match(r"transept\[(\w+)\]", requirement)
        found += needs(own[1]) if own else [requirement]
    return found


print(*project["dependencies"], *needs("dev"), sep="\n")
