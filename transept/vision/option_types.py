"""Types of the keywords of public calls, for type checkers and editors; never imported at run time.

Generated from the declarations of options by `make option-types`; do not edit.
"""

from __future__ import annotations

from transept.core.option_types import EngineKeywords
from transept.core.request.option_types import SingleTextKeywords


class ReadingKeywords(SingleTextKeywords, total=False):
    """The options of reading images."""

    task: str | None
    lora: str | None


class ReadingAndEngineKeywords(ReadingKeywords, EngineKeywords, total=False):
    """The options of reading images and of its engine."""
