"""Fields of ``POST /v1/audio/transcriptions`` and ``/v1/audio/translations``: OpenAI's, and Transept's options."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

from transept.core.request.keywords import keywords
from transept.errors import ParameterError, shown
from transept.options import Option, declared, declares_options, made_of, take_options
from transept.serving.http.fields import FORM, Body
from transept.speech.options import TranscriptionOptions
from transept.speech.output.subtitles import SubtitleLayout
from transept.speech.speaker_options import OF_SEVERAL, listed_names
from transept.speech.vad.options import VadOptions

GRANULARITIES = ("segment", "word")
INCLUDED = ("logprobs",)
OPENAI_PARTS = {"min_silence_duration_ms": "silence_duration_ms", "speech_pad_ms": "prefix_padding_ms"}
MOST_KNOWN_SPEAKERS = 100  # of a request; OpenAI takes 4
REFERENCE = re.compile(r"data:[\w.+/-]*(?:;[\w=.+-]+)*;base64,([A-Za-z0-9+/=\s]+)")
BETWEEN_REFERENCES = re.compile(r",(?=data:)")
A_STRATEGY = 'auto, or {"type": "server_vad"} with optional threshold, silence_duration_ms and prefix_padding_ms'
VAD = {name: each.option for name, each in declared(VadOptions).items()}


@declares_options("server_vad has no")
@dataclass(frozen=True)
class ServerVad:
    """OpenAI's chunking by voice activity, which auto mode always does."""

    type: Annotated[Literal["server_vad"], Option("the only kind of chunking")]
    threshold: Annotated[float | None, VAD["threshold"]] = None
    silence_duration_ms: Annotated[float | None, VAD["min_silence_duration_ms"]] = None
    prefix_padding_ms: Annotated[float | None, VAD["speech_pad_ms"]] = None

    def __post_init__(self) -> None:
        take_options(self)

    def vad_options(self) -> dict[str, float]:
        """Return the options of voice activity detection that it sets."""
        found = {ours: getattr(self, OPENAI_PARTS.get(ours, ours)) for ours in ("threshold", *OPENAI_PARTS)}
        return {name: value for name, value in found.items() if value is not None}


def _chunking(name: str, given: Any) -> Any:
    """Parse a chunking_strategy that is an object."""
    if given in (None, "auto") or isinstance(given, ServerVad):
        return given
    if not isinstance(given, dict) or "type" not in given:
        raise ParameterError(f"{{{name}}} must be {A_STRATEGY}, not {shown(given)}", param=name, value=given)
    return made_of(ServerVad, name, given)


def _words(known: Sequence[str], name: str, given: Any) -> tuple[str, ...]:
    """Parse comma-separated words. known: the valid ones; empty: any."""
    words = given if isinstance(given, tuple) else tuple(word.strip() for word in given.split(",") if word.strip())
    for word in words:
        if known and word not in known:
            raise ParameterError(
                f"{{{name}}} may hold {' and '.join(known)}, not {word[:100]!r}", param=name, value=given
            )
    return words


def _references(name: str, given: Any) -> tuple[bytes, ...]:
    """Parse recordings of speakers: data URLs in base64, with commas between them."""
    if isinstance(given, tuple):
        return given
    found: list[bytes] = []
    for url in BETWEEN_REFERENCES.split(given):
        match = REFERENCE.fullmatch(url.strip())
        try:
            if match is None or len(found) == MOST_KNOWN_SPEAKERS:
                raise ValueError
            found.append(base64.b64decode(match[1]))
        except ValueError:
            message = f"{{{name}}} must be at most {MOST_KNOWN_SPEAKERS} URLs such as data:audio/wav;base64,UklGR..., "
            raise ParameterError(f"{message}not {shown(url[:40])}", param=name, value=url[:40]) from None
    return tuple(found)


@dataclass(frozen=True)
class Recording:
    """The field of the upload."""

    file: Annotated[bytes, Option("recording, or a video with one, in any format that FFmpeg reads")]


@dataclass(frozen=True)
class OwnFields:
    """OpenAI's fields with another name or meaning than Transept's options, and fields of the answer's format."""

    model: Annotated[str, Option("a name of `/v1/models`", "Default: the first speech model.")] = ""
    prompt: Annotated[str, Option("OpenAI's name for initial_prompt")] = ""
    response_format: Annotated[
        Literal[
            "json", "verbose_json", "diarized_json", "text", "srt", "vtt", "tsv", "csv", "lrc", "ass", "ttml", "html"
        ],
        Option("format of the answer", "A stream sends events with any format; subtitles cannot be streamed."),
    ] = "json"
    timestamp_granularities: Annotated[
        tuple[Literal["segment", "word"], ...],
        Option("times of verbose_json", "Default: segment.", parse=partial(_words, GRANULARITIES)),
    ] = ()
    stream: Annotated[bool, Option("answer by server-sent events as text is generated")] = False
    include: Annotated[
        tuple[Literal["logprobs"], ...],
        Option("logprobs: the log probability of every token", parse=partial(_words, INCLUDED)),
    ] = ()
    chunking_strategy: Annotated[
        Literal["auto"] | ServerVad | None,
        Option("OpenAI's form of vad_options", wanted=A_STRATEGY, parse=_chunking),
    ] = None
    keywords: Annotated[
        tuple[str, ...],
        Option(
            "terms to prefer where they are spoken, such as names",
            "With commas between them, or a JSON list, or a JSON object of terms and boosts.",
            parse=keywords,
        ),
    ] = ()
    languages: Annotated[
        tuple[str, ...], Option("OpenAI's name for language", "One at most.", parse=partial(_words, ()))
    ] = ()
    voices: Annotated[
        str | None,
        Option("known voices, whose names speakers get", "The JSON of a file of `transept voices`."),
    ] = None
    known_speaker_names: Annotated[
        tuple[str, ...],
        Option("names of the speakers of known_speaker_references", "In the same order.", parse=listed_names),
    ] = ()
    known_speaker_references: Annotated[
        tuple[bytes, ...],
        Option("a recording of each of known_speaker_names, as data URL", parse=_references),
    ] = ()
    progress: Annotated[bool, Option("also stream the place in the queue and the progress")] = False


BODY = Body(
    *(FORM, Recording, OwnFields, TranscriptionOptions, SubtitleLayout),
    without=OF_SEVERAL,
)
