"""The values of options as users write them: lists, texts with commas, dicts; one form of each afterwards.

TranscriptionOptions declares these functions as the ``parse`` of its options: each takes the option's name and a value,
and raises ParameterError, which names the option, for a value that cannot be understood.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Iterable, Mapping
from contextlib import suppress
from numbers import Real
from typing import Any

from transept.errors import ParameterError, shown
from transept.option_names import finite
from transept.options import MAX_TEMPERATURE

DETECTED = ("", "auto", "none")  # in place of a language
LONGEST_REGEX = 1000  # characters
CALIBRATED = "auto"  # as encoder_context
LAST_TEMPERATURE = 1.0  # of the fallback
LEAST_INCREMENT = 0.01  # step of the temperature; allows at most 101 attempts at a window
MOST_TEMPERATURES = 101  # attempts at a window: from 0 to 1 in steps of 0.01


def language_or_none(name: str, language: Any) -> Any:
    """Return a language unchanged; None for other programs' values for detection: auto, None, or nothing."""
    return None if isinstance(language, str) and language.strip().lower() in DETECTED else language


def temperatures(name: str, given: Any) -> float | tuple[float, ...]:
    """Return one temperature as a float, several as a tuple, also of a text with commas."""
    if isinstance(given, bool):
        values: tuple[float, ...] = ()
    else:
        values = (finite(given),) if isinstance(given, Real) else numbers(name, given, "0.2 or (0.0, 0.2, 0.4)")
    if not values or not all(0.0 <= each <= MAX_TEMPERATURE for each in values):
        raise ParameterError(
            f"{{{name}}} must be numbers of at least 0 and at most {MAX_TEMPERATURE:g}, not {{{name}!}}",
            param=name,
            value=given,
        )
    if len(values) > MOST_TEMPERATURES:
        raise ParameterError(
            f"{{{name}}} holds {len(values)} numbers; a window is decoded at one after the other, and "
            f"{MOST_TEMPERATURES} are the most: take larger steps",
            param=name,
            value=given,
        )
    return values[0] if isinstance(given, Real) else values


def prompt(name: str, given: Any) -> Any:
    """Return a text unchanged, and anything else as token ids."""
    if given is None or isinstance(given, str):
        return given
    return token_ids(name, given, lowest=0, wanted="text or token ids, such as (50, 60)")


def audio_track(name: str, given: Any) -> int | str | None:
    """Return a track's number, from 0, or a language code; None for None."""
    if given is None:
        return None
    from transept.multimodal.audio_tracks import checked_track

    return checked_track(given)


def clip_times(name: str, given: Any) -> tuple[float, ...]:
    """Return clips as start, end, start, end, ... in seconds: of a list, of a text with commas, or of dicts."""
    times = numbers(name, _flat_clips(name, given), "(0.0, 10.0)")
    if list(times) != sorted(times) or not all(0.0 <= time < math.inf for time in times):
        raise ParameterError(
            f"{{{name}}} must be rising times in seconds from 0 up, not {{{name}!}}", param=name, value=given
        )
    return times


def _flat_clips(name: str, clips: Any) -> Any:
    """Return clips that are dicts, as faster-whisper has them, as start, end, start, end, ...; anything else unchanged.

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
            raise ParameterError(f"{{{name}}} must be {wanted_form}, not {shown(clip)}", param=name, value=clips)
    return [clip[key] for clip in clips for key in ("start", "end") if key in clip]


def pattern(name: str, given: Any) -> Any:
    """Return a regular expression unchanged.

    Raises ParameterError for a text that is not a regular expression, or is longer than LONGEST_REGEX.
    """
    if not isinstance(given, str):
        return given
    import regex

    if len(given) > LONGEST_REGEX:
        raise ParameterError(
            f"{{{name}}} has {len(given)} characters; {LONGEST_REGEX} are the most", param=name, value=given
        )
    try:
        regex.compile(given)
    except (regex.error, RecursionError, OverflowError) as error:
        raise ParameterError(
            f"{{{name}}} is not a regular expression: {error}: {{{name}!}}", param=name, value=given
        ) from None
    return given


def encoder_context(name: str, given: Any) -> Any:
    """Return CALIBRATED, seconds from 0 up, also of a text, or None. Raises ParameterError for anything else."""
    if given is None or (isinstance(given, str) and given.strip().lower() == "none"):
        return None
    if isinstance(given, str) and given.strip().lower() == CALIBRATED:
        return CALIBRATED
    with suppress(OverflowError, TypeError, ValueError):
        seconds = float(given)
        if not isinstance(given, bool) and 0.0 <= seconds < math.inf:
            return seconds
    raise ParameterError(
        f'{{{name}}} must be "{CALIBRATED}" or seconds of at least 0, not {{{name}!}}', param=name, value=given
    )


def rising_temperatures(temperature: Any, increment: Any) -> tuple[float, ...]:
    """Return the temperatures of openai-whisper's ``temperature_increment_on_fallback``.

    temperature: the first one; the others rise by the increment up to LAST_TEMPERATURE. Without an increment,
    return the given ones. Raises ParameterError for an increment below LEAST_INCREMENT, or with
    several temperatures.
    """
    if increment is not None and (
        isinstance(increment, bool) or not isinstance(increment, int | float) or not increment >= LEAST_INCREMENT
    ):
        name = "temperature_increment_on_fallback"
        message = f"{{{name}}} must be a number of at least {LEAST_INCREMENT:g}, not {{{name}!}}"
        raise ParameterError(message, param=name, value=increment)
    given = temperatures("temperature", temperature)
    first, *others = given if isinstance(given, tuple) else (given,)
    if increment is None:
        return (first, *others)
    if others:
        message = "{temperature} holds all temperatures to try; leave {temperature_increment_on_fallback} out"
        raise ParameterError(
            message, param="temperature", value=temperature, others=["temperature_increment_on_fallback"]
        )
    steps = max(0, int((LAST_TEMPERATURE + 1e-6 - first) / increment))
    return tuple(round(first + step * increment, 6) for step in range(steps + 1))


def numbers(name: str, given: str | Iterable[float], example: str) -> tuple[float, ...]:
    """Return the numbers of a list, or of a text with commas. Raises ParameterError if one is not a number."""
    values = [part for part in given.split(",") if part.strip()] if isinstance(given, str) else given
    try:
        return tuple(float(value) for value in values)
    except (OverflowError, TypeError, ValueError):
        raise ParameterError(
            f"{{{name}}} must be numbers, such as {example}, not {{{name}!}}", param=name, value=given
        ) from None


def token_ids(
    name: str, given: str | Iterable[int] | None, lowest: int, wanted: str = "a list of token ids, such as -1 or 50,60"
) -> tuple[int, ...]:
    """Return the ids of a list, or of a text with commas; none for None.

    Raises ParameterError for other values, and for ids below `lowest`.
    """
    if given is None or (isinstance(given, str) and given.strip().lower() == "none"):
        return ()
    try:
        values = [int(part) for part in given.split(",") if part.strip()] if isinstance(given, str) else given
        tokens = tuple(operator.index(token) for token in values)
    except (TypeError, ValueError):
        raise ParameterError(f"{{{name}}} must be {wanted}, not {{{name}!}}", param=name, value=given) from None
    if tokens and min(tokens) < lowest:
        raise ParameterError(f"{{{name}}} holds {min(tokens)}; token ids start at 0", param=name, value=given)
    return tokens
