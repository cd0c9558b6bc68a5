"""Select an audio track of a container by its number or its language.

`media` calls `track_of`. If no track is named and the default one is silent, `media` looks for the loudest.
"""

from __future__ import annotations

import re
from numbers import Integral
from typing import Any

from transept.errors import MediaError, ParameterError, shown
from transept.multimodal.languages import ALIKE


def checked_track(track: Any) -> int | str | None:
    """Return a track's number, from 0, or a language, by code or name. Raises ParameterError for anything else."""
    if track is None:
        return None
    text = "" if isinstance(track, bool) or not isinstance(track, str | Integral) else str(track).strip().lower()
    if re.fullmatch(r"[0-9]{1,5}", text):
        return int(text)
    if re.fullmatch(r"[a-z]{2,8}([-_][a-z0-9]{1,8})*", text) or _as_name(text) in ALIKE:
        return text
    raise ParameterError(
        "{audio_track} must be the number of a track, from 0 up, or its language such as eng or English, "
        f"not {shown(track)}",
        param="audio_track",
        value=track,
    )


def only_track(track: int | str | None, name: str) -> None:
    """Raise MediaError if a track other than the first is requested of a recording with one track and no language."""
    if isinstance(track, int) and track > 0:
        message = f"{name} has one audio track, so there is no track {track}: leave {{audio_track}} out, or use 0"
        raise MediaError(message, param="audio_track", value=track)


def track_of(container: Any, track: int | str | None, name: str) -> Any:
    """Return the requested stream of an open container; None if FFmpeg decodes none.

    track: a number, a language, or None for the one that FFmpeg deems best. A lone track without a language
    matches any language. Raises MediaError for a track that does not exist or that FFmpeg does not decode.
    """
    if track is None:
        best = container.streams.best("audio")
        return None if best is None or best.codec_context is None else best
    streams = container.streams.audio
    if not streams:
        return None
    if isinstance(track, int):
        found = streams[track] if track < len(streams) else None
    else:
        wanted = _language(track)
        found = next((each for each in streams if _language(language_of(each)) == wanted), None)
        if len(streams) == 1 and not language_of(streams[0]):
            found = streams[0]
    if found is None:
        what = f"no track {track}" if isinstance(track, int) else f'no track in "{track}"'
        known = ", ".join(label(each, number) for number, each in enumerate(streams))
        message = f"{name} has {what}: its audio tracks are {known}. Choose one of them as {{audio_track}}"
        raise MediaError(message, param="audio_track", value=track)
    if found.codec_context is None:
        message = f"{name} has a track {track} that FFmpeg does not decode: choose another {{audio_track}}"
        raise MediaError(message, param="audio_track", value=track)
    return found


def language_of(stream: Any) -> str:
    """Return the language code that a container has for a track; empty if it has none."""
    code = str(stream.metadata.get("language", "")).lower()
    return "" if code == "und" else code


def label(stream: Any, number: int) -> str:
    """Return the name of a track in messages."""
    return f'{number} ("{language_of(stream)}")' if language_of(stream) else str(number)


def _language(code: str) -> str:
    """Return one code for all of a language's and for its name: ``"en"``, ``"eng"``, ``"en-GB"`` and ``"English"``."""
    code = code.strip().lower()
    primary = re.split("[-_]", code)[0]
    return ALIKE.get(_as_name(code)) or ALIKE.get(primary, primary)


def _as_name(language: str) -> str:
    return re.sub(r"[\s-]+", "_", language)
