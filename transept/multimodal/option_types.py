"""Types of the keywords of public calls, for type checkers and editors; never imported at run time.

Generated from the declarations of options by `make option-types`; do not edit.
"""

from __future__ import annotations

from typing import TypedDict


class AudioLimitKeywords(TypedDict, total=False):
    """The options of AudioLimits."""

    max_audio_seconds: float | None
    max_audio_bytes: int | None
    max_stream_bytes: int | None
    max_decoded_bytes: int | None
