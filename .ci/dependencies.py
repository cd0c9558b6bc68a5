"""Prints what the extra `dev` needs, a line each, without the packages of this repository, for pip."""

import re
import tomllib
from pathlib import Path
from typing import Any

SPEAKERS = "packages/transept-speakers"


def project_of(folder: str) -> dict[str, Any]:
    """The table `project` of the pyproject.toml in a folder."""
    return tomllib.loads(Path(folder, "pyproject.toml").read_text(encoding="utf-8"))["project"]


project = project_of(".")


def needs(extra: str) -> list[str]:
    """The requirements of an extra, with those of the extras that it names."""
    found = []
    for requirement in project["optional-dependencies"][extra]:
        own = re.match(r"transept\[(\w+)\]", requirement)
        if own:
            found += needs(own[1])
        elif requirement.startswith("transept-speakers"):  # a folder of this repository
            found += project_of(SPEAKERS)["dependencies"][1:]
        else:
            found.append(requirement)
    return found


print(*project["dependencies"], *needs("dev"), sep="\n")
