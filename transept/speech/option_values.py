"""The values of options as users write them: lists, texts with commas, dicts; one form of each afterwards.

Called by TranscriptionOptions alone. Every error names the option.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from transept.errors import ParameterError, shown

DETECTED = ("", "auto", "none")  # in place of a language
LONGEST_REGEX = 1000  # characters
CALIBRATED = "auto"  # as encoder_context
LAST_TEMPERATURE = 1.0  # of the fallback
LEAST_INCREMENT = 0.01  # of the fallback: 101 attempts at a window


def flat_clips(clips: Any) -> Any:
    """Clips that are dicts, as faster-whisper has them, as start, end, start, end, ...; anything else as it is.

    Raises ParameterError for a dict with other keys, or without an end where others follow.
    """
    if clips is None:
        return ()
    if isinstance(clips, str) and clips.lstrip().startswith("["):
        with suppress(ValueError, RecursionError):
            clips = json.loads(clips)
    if isinstance(clips, str | bytes) or not isinstance(clips, Iterable):
        return clips
    clips = list(clips)
    if not any(isinstance(clip, Mapping) for clip in clips):
        return clips
    last = len(clips) - 1
    for index, clip in enumerate(clips):
        wanted = {"start", "end"} if index < last else {"start"}
        if not isinstance(clip, Mapping) or not wanted <= set(clip) <= {"start", "end"}:
            wanted_form = '{"start": ..., "end": ...} for each clip, in seconds'
            raise ParameterError(f"clip_timestamps must be {wanted_form}, not {shown(clip)}")
    return [clip[name] for clip in clips for name in ("start", "end") if name in clip]


def language_or_none(language: Any) -> Any:
    """A language as it is given; None for what other programs write for "detect it": auto, None, or nothing."""
    return None if isinstance(language, str) and language.strip().lower() in DETECTED else language


def check_regex(pattern: str | None) -> None:
    """Raise ParameterError for a suppress_regex that is none, or longer than LONGEST_REGEX."""
    if pattern is None:
        return
    import regex

    if len(pattern) > LONGEST_REGEX:
        raise ParameterError(f"suppress_regex has {len(pattern)} characters; {LONGEST_REGEX} are the most")
    try:
        regex.compile(pattern)
    except (regex.error, RecursionError, OverflowError) as error:
        raise ParameterError(f"suppress_regex is no regular expression: {error}: {shown(pattern)}") from None


def encoder_context(given: Any) -> Any:
    """CALIBRATED, seconds from 0 up, also as text, or None. Raises ParameterError for anything else."""
    if given is None or (isinstance(given, str) and given.strip().lower() == "none"):
        return None
    if isinstance(given, str) and given.strip().lower() == CALIBRATED:
        return CALIBRATED
    with suppress(OverflowError, TypeError, ValueError):
        seconds = float(given)
        if not isinstance(given, bool) and 0.0 <= seconds < math.inf:
            return seconds
    raise ParameterError(f'encoder_context must be "{CALIBRATED}" or seconds of at least 0, not {shown(given)}')


def rising_temperatures(first: float, increment: float) -> tuple[float, ...]:
    """The first temperature and those above it, up to LAST_TEMPERATURE, as openai-whisper's command makes them."""
    steps = max(0, int((LAST_TEMPERATURE + 1e-6 - first) / increment))
    return tuple(round(first + step * increment, 6) for step in range(steps + 1))


def numbers(name: str, given: str | Iterable[float]) -> tuple[float, ...]:
    """The numbers of a list, or of a text with commas.

    Raises ParameterError with the option's name for what is none.
    """
    values = [part for part in given.split(",") if part.strip()] if isinstance(given, str) else given
    try:
        return tuple(float(value) for value in values)
    except (OverflowError, TypeError, ValueError):
        raise ParameterError(f"{name} must be numbers, such as (0.0, 10.0), not {given!r}") from None


def token_ids(name: str, given: str | Iterable[int] | None, lowest: int) -> tuple[int, ...]:
    """The ids of a list, or of a text with commas; none for None.

    Raises ParameterError with the option's name for what is no id, and for ids under the lowest.
    """
    if given is None:
        return ()
    try:
        values = [int(part) for part in given.split(",") if part.strip()] if isinstance(given, str) else given
        tokens = tuple(operator.index(token) for token in values)
    except (TypeError, ValueError):
        raise ParameterError(f"{name} must be a list of token ids, not {given!r}") from None
    if tokens and min(tokens) < lowest:
        raise ParameterError(f"{name} holds {min(tokens)}; token ids start at 0")
    return tokens
