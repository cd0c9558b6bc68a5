"""setuptools' build backend, which asks for a compiler from the package index where setup.py would find none."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403  # the hooks that stay as they are

_COMPILER = "ziglang>=0.13"


def _with_compiler(requirements: list[str]) -> list[str]:
    others = () if sys.platform == "win32" else ("c++", "g++", "clang++")
    found = "TRANSEPT_TARGET" not in os.environ and ("CXX" in os.environ or any(map(shutil.which, others)))
    return requirements if found else [*requirements, _COMPILER]


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """See PEP 517."""
    return _with_compiler(build_meta.get_requires_for_build_wheel(config_settings))


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    """See PEP 660."""
    return _with_compiler(build_meta.get_requires_for_build_editable(config_settings))
