"""The settings of a transcription session, in the shape of OpenAI's ``session`` object.

`TranscriptionSession.of` makes them from JSON, and `merged` applies a `session.update`. Used by `session`, and by the
endpoint for client secrets. The fields are declared like all other options, so that errors suggest what would work.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from transept.errors import ParameterError, either
from transept.options import Option, made_of, take_options

Kind = TypeVar("Kind")

PCM, PCMU, PCMA = "audio/pcm", "audio/pcmu", "audio/pcma"
PCM_RATE, G711_RATE = 24_000, 8_000  # samples a second: OpenAI's PCM, and telephones
LOGPROBS = "item.input_audio_transcription.logprobs"  # OpenAI's name
WORDS, TENTATIVE = "item.input_audio_transcription.words", "item.input_audio_transcription.tentative"  # ours
INCLUDABLE = (LOGPROBS, WORDS, TENTATIVE)
Delay = Literal["minimal", "low", "medium", "high", "xhigh"]


def part(kind: type[Any], help: str, wanted: str = "an object") -> Option:
    """Declare an option whose value is a JSON object with the options of `kind`."""

    def parse(name: str, given: Any) -> Any:
        """Return any other value unchanged, because the check of types refuses it."""
        return made_of(kind, name, given) if isinstance(given, Mapping) else given

    return Option(help, wanted=wanted, parse=parse)


def _texts(name: str, given: Any) -> Any:
    """Make a tuple of a JSON list of texts."""
    if given is None or isinstance(given, tuple):
        return given
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise ParameterError(f"{{{name}}} must be a list of texts, not {{{name}!}}", param=name, value=given)
    return tuple(given)


def _included(name: str, given: Any) -> Any:
    """Make a tuple of names of INCLUDABLE."""
    for each in (found := _texts(name, given) or ()):
        if each not in INCLUDABLE:
            message = f"{{{name}}} may contain {either(INCLUDABLE)}, not {each[:100]!r}"
            raise ParameterError(message, param=name, value=given)
    return found


@dataclass(frozen=True)
class AudioFormat:
    """Encoding of the audio that a client appends: one channel of 16-bit little-endian samples, or G.711."""

    type: Annotated[Literal["audio/pcm", "audio/pcmu", "audio/pcma"], Option("encoding of the samples")] = "audio/pcm"
    rate: Annotated[
        int | None,
        Option(
            "samples a second", "OpenAI's clients send 24000; others are resampled. G.711 has 8000.", ge=8000, le=96_000
        ),
    ] = None

    def __post_init__(self) -> None:
        take_options(self)
        if self.rate is None:
            object.__setattr__(self, "rate", PCM_RATE if self.type == PCM else G711_RATE)
        if self.type != PCM and self.rate != G711_RATE:
            message = "{rate} of {type!} is {=8000}, not {rate!}: leave it out, or send {type='audio/pcm'}"
            raise ParameterError(message, param="rate", value=self.rate, others={"type": self.type})

    @property
    def sample_rate(self) -> int:
        """Samples a second."""
        assert self.rate is not None  # since __post_init__
        return self.rate


@dataclass(frozen=True)
class Transcription:
    """The model of a session and its options. delay: OpenAI's name for the time until words are final."""

    model: Annotated[str | None, Option("a name of `/v1/models`", "Default: the first speech model.")] = None
    language: Annotated[str | None, Option("spoken language, such as en", "Default: detected.")] = None
    languages: Annotated[
        tuple[str, ...] | None,
        Option("OpenAI's list for language", "One at most.", wanted="a list of texts", parse=_texts),
    ] = None
    prompt: Annotated[str | None, Option("text before the speech, as context")] = None
    keywords: Annotated[
        tuple[str, ...] | None,
        Option("terms to prefer where they are spoken", wanted="a list of texts", parse=_texts),
    ] = None
    delay: Annotated[Delay | None, Option("patience before text is final; higher: fewer errors")] = None

    def __post_init__(self) -> None:
        take_options(self)
        if len(self.languages or ()) > 1 or (self.languages and self.language not in (None, self.languages[0])):
            message = "a session has one spoken language: send {language} alone, or leave it out to have it detected"
            raise ParameterError(message, param="languages", value=self.languages, others=["language"])

    @property
    def spoken(self) -> str | None:
        """The spoken language; None: detected."""
        return self.language or (self.languages[0] if self.languages else None)


@dataclass(frozen=True)
class TurnDetection:
    """Detection of utterances by voice activity."""

    type: Annotated[Literal["server_vad"], Option("utterances by voice activity")] = "server_vad"
    threshold: Annotated[float, Option("lowest probability that counts as speech", gt=0.0, lt=1.0)] = 0.5
    prefix_padding_ms: Annotated[float, Option("audio kept before speech, in ms", ge=0, le=2000)] = 300
    silence_duration_ms: Annotated[float, Option("silence that ends an utterance, in ms", ge=64, le=10_000)] = 500
    create_response: Annotated[bool | None, Option("of conversations; has no effect")] = None
    interrupt_response: Annotated[bool | None, Option("of conversations; has no effect")] = None

    def __post_init__(self) -> None:
        take_options(self)


@dataclass(frozen=True)
class NoiseReduction:
    """OpenAI's noise reduction, which is accepted and has no effect."""

    type: Annotated[Literal["near_field", "far_field"] | None, Option("kind of microphone")] = None
    strength: Annotated[float | None, Option("strength of the reduction", ge=0)] = None

    def __post_init__(self) -> None:
        take_options(self)


PCM_24, ANY_MODEL, SERVER_VAD = AudioFormat(), Transcription(), TurnDetection()  # OpenAI's defaults


@dataclass(frozen=True)
class AudioInput:
    """Settings of the audio and of its transcription. turn_detection: None if the client commits each utterance."""

    format: Annotated[
        AudioFormat,
        part(AudioFormat, "encoding of the audio", 'an object such as {"type": "audio/pcm", "rate": 24000}'),
    ] = PCM_24
    transcription: Annotated[
        Transcription, part(Transcription, "model, language and prompt", 'an object such as {"model": "base"}')
    ] = ANY_MODEL
    turn_detection: Annotated[
        TurnDetection | None,
        part(TurnDetection, "how utterances begin and end", 'an object such as {"type": "server_vad"}, or null'),
    ] = SERVER_VAD
    noise_reduction: Annotated[
        NoiseReduction | None,
        part(NoiseReduction, "accepted without effect", 'an object such as {"type": "near_field"}, or null'),
    ] = None

    def __post_init__(self) -> None:
        take_options(self)


OPENAI_INPUT = AudioInput()


@dataclass(frozen=True)
class SessionAudio:
    """The audio of a session. A transcription session has only an input."""

    input: Annotated[AudioInput, part(AudioInput, "settings of the audio")] = OPENAI_INPUT

    def __post_init__(self) -> None:
        take_options(self)


OPENAI_AUDIO = SessionAudio()


@dataclass(frozen=True)
class TranscriptionSession:
    """A session's settings. include: names from INCLUDABLE, of additional fields and events."""

    type: Annotated[Literal["transcription"], Option("the only kind of session of this server")] = "transcription"
    audio: Annotated[SessionAudio, part(SessionAudio, "settings of the audio")] = OPENAI_AUDIO
    include: Annotated[
        tuple[str, ...], Option("further contents of events", wanted="a list of texts", parse=_included)
    ] = ()

    def __post_init__(self) -> None:
        take_options(self)

    @classmethod
    def of(cls, given: Any) -> TranscriptionSession:
        """Make the settings from a ``session`` object of JSON. Raises ParameterError with the path of a wrong field."""
        if not isinstance(given, Mapping):
            raise ParameterError("{session} must be an object, not {session!}", param="session", value=given)
        made = made_of(cls, "session", given)
        assert isinstance(made, cls)
        return made

    def merged(self, update: Any) -> TranscriptionSession:
        """Return the settings with the fields of a `session.update`. Raises ParameterError.

        Fields that the update lacks keep their values; null resets a field, and turns `turn_detection` off.
        """
        return self.of(_merged(self.described(), update)) if isinstance(update, Mapping) else self.of(update)

    @property
    def input(self) -> AudioInput:
        """The settings of the audio and of its transcription."""
        return self.audio.input

    def described(self) -> dict[str, Any]:
        """Return OpenAI's ``session`` object. Leaves out unset fields, except those that null turns off."""
        described: dict[str, Any] = dataclasses.asdict(self)
        found = described["audio"]["input"]
        for name in ("transcription", "turn_detection", "noise_reduction"):
            if found[name] is not None:
                found[name] = _set(found[name])
        described["include"] = list(self.include)
        return described


def _set(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that have a value, with lists in place of tuples."""
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in fields.items() if value is not None
    }


def _merged(old: Mapping[str, Any], update: Mapping[str, Any]) -> dict[str, Any]:
    """Merge objects field by field. Another encoding replaces the whole format, since its rate differs."""
    found = dict(old)
    for name, value in update.items():
        kept = found.get(name)
        if isinstance(value, Mapping) and isinstance(kept, Mapping) and not _changes_encoding(kept, value):
            found[name] = _merged(kept, value)
        elif value is None and isinstance(kept, Mapping | list) and name not in ("turn_detection", "noise_reduction"):
            del found[name]
        else:
            found[name] = value
    return found


def _changes_encoding(kept: Mapping[str, Any], value: Mapping[str, Any]) -> bool:
    return str(kept.get("type")).startswith("audio/") and value.get("type", kept.get("type")) != kept.get("type")
