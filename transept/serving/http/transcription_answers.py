"""The answers about speech, in OpenAI's formats with further fields. Called by `transcriptions`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from transept.serving.http.token_logprobs import bytes_of
from transept.speech.options import TRANSLATES_TO
from transept.speech.segments import Segment
from transept.speech.speech_model import SpeechModel
from transept.speech.transcript import Transcript, TranscriptionInfo


class Usage(TypedDict):
    """OpenAI's usage. seconds: of the recording."""

    type: Literal["duration"]
    seconds: float


class TokenLogprob(TypedDict):
    """A token's text, and its log probability."""

    token: str
    logprob: float
    bytes: list[int]


class Transcription(TypedDict):
    """json. logprobs: with include=logprobs."""

    text: str
    usage: Usage
    logprobs: NotRequired[list[TokenLogprob]]


class TimedWord(TypedDict):
    """A word, its times in seconds, the probability of its tokens, and its speaker."""

    word: str
    start: float
    end: float
    probability: float
    speaker: NotRequired[str]


class VerboseTranscription(TypedDict):
    """verbose_json: OpenAI's fields, and further ones. language: of the text."""

    task: str
    language: str
    spoken_language: NotRequired[str]
    duration: float
    text: str
    segments: NotRequired[list[Segment]]
    words: NotRequired[list[TimedWord]]
    target_language: NotRequired[str]
    language_probability: float | None
    language_probabilities: dict[str, float]
    duration_after_vad: float
    missed_speech: list[tuple[float, float]]
    warnings: list[str]
    reason: str | None
    usage: Usage


class SegmentEvent(TypedDict):
    """A segment of a stream, or of diarized_json."""

    type: Literal["transcript.text.segment"]
    id: str
    start: float
    end: float
    text: str
    speaker: str
    seek: int
    tokens: list[int]
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float
    words: NotRequired[list[TimedWord]]
    language: NotRequired[str]


class DiarizedTranscription(TypedDict):
    """diarized_json."""

    task: str
    duration: float
    text: str
    segments: list[SegmentEvent]
    usage: Usage


class DeltaEvent(TypedDict):
    """New text."""

    type: Literal["transcript.text.delta"]
    delta: str
    logprobs: NotRequired[list[TokenLogprob]]


class DoneEvent(TypedDict):
    """The whole text, at the end."""

    type: Literal["transcript.text.done"]
    text: str
    language: str
    duration: float
    warnings: list[str]
    reason: str | None
    usage: Usage


class QueuedEvent(TypedDict):
    """With progress: the request's place in the queue."""

    type: Literal["transcript.queued"]
    position: int


class OpenedEvent(TypedDict):
    """With progress: the recording was decoded."""

    type: Literal["transcript.opened"]
    duration: float


class InfoEvent(TypedDict):
    """With progress: properties of the recording that are known before the first segment."""

    type: Literal["transcript.info"]
    language: str
    language_probability: float | None
    duration: float
    duration_after_vad: float
    warnings: list[str]


class ProgressEvent(TypedDict):
    """With progress: seconds of the recording that are done."""

    type: Literal["transcript.progress"]
    seconds: float


Event = DeltaEvent | SegmentEvent | DoneEvent | QueuedEvent | OpenedEvent | InfoEvent | ProgressEvent


def verbose_answer(model: SpeechModel, transcript: Transcript, granularities: Sequence[str]) -> dict[str, Any]:
    """Return OpenAI's verbose JSON, with probabilities of words and languages. granularities: of times.

    If the task is to translate, language is the language of the text, as in OpenAI's API; else the spoken language.
    """
    options, spoken = transcript.options, transcript.language
    is_translation = options.task == "translate"
    text_language = model.language_code(options.target_language) or TRANSLATES_TO if is_translation else spoken
    answer: dict[str, Any] = {
        "task": model.task(spoken, options),
        "language": _name(model, text_language),
        **({"spoken_language": _name(model, spoken)} if is_translation else {}),
        "duration": transcript.duration,
        "text": transcript.text,
    }
    if not granularities or "segment" in granularities:
        answer["segments"] = [segment.to_dict() for segment in transcript.segments]
    if "word" in granularities:
        answer["words"] = [
            vars(word) | {"word": word.word.strip()} | ({} if segment.speaker is None else {"speaker": segment.speaker})
            for segment in transcript.segments
            for word in segment.words or ()
        ]
    if options.target_language is not None:
        answer["target_language"] = options.target_language
    known = (
        "language_probability",
        "language_probabilities",
        "duration_after_vad",
        "missed_speech",
        "warnings",
        "reason",
    )
    return {**answer, **{name: getattr(transcript, name) for name in known}, "usage": usage(transcript)}


def _name(model: SpeechModel, language: str) -> str:
    """Return a language's English name, or its code if the model has no name for it."""
    return next((name for name, code in model.spec.language_names.items() if code == language), language)


def diarized_answer(model: SpeechModel, transcript: Transcript) -> dict[str, Any]:
    """Return OpenAI's diarized JSON: the text, and segments with their speakers."""
    return {
        "task": model.task(transcript.language, transcript.options),
        "duration": transcript.duration,
        "text": transcript.text,
        "segments": [segment_event(segment, segment.id) for segment in transcript.segments],
        "usage": usage(transcript),
    }


INFO_FIELDS = ("language", "language_probability", "duration", "duration_after_vad", "warnings")


def info_fields(info: TranscriptionInfo) -> dict[str, Any]:
    """Return the fields of an InfoEvent."""
    return {name: getattr(info, name) for name in INFO_FIELDS}


SEGMENT_NUMBERS = ("seek", "tokens", "temperature", "avg_logprob", "compression_ratio", "no_speech_prob")


def segment_event(segment: Segment, number: int) -> dict[str, Any]:
    """Return a SegmentEvent: OpenAI's segment of a stream, with further fields."""
    event: dict[str, Any] = {
        "type": "transcript.text.segment",
        "id": f"seg_{number}",
        "start": segment.start,
        "end": segment.end,
        "text": segment.text,
        "speaker": segment.speaker or "",
        **{name: getattr(segment, name) for name in SEGMENT_NUMBERS},
    }
    if segment.words is not None:
        event["words"] = [vars(word) for word in segment.words]
    if segment.language is not None:
        event["language"] = segment.language
    return event


def segment_logprobs(model: SpeechModel, segment: Segment) -> list[dict[str, Any]]:
    r"""Return OpenAI's log probabilities of the text tokens, without timestamps.

    A token that is a part of a character has its bytes, with ``\xe2`` for each byte as its text.
    """
    listed = []
    for token, logprob in zip(segment.tokens, segment.token_logprobs or (), strict=True):
        if token in model.tokenizer.text_tokens:
            if (raw := bytes_of(model.tokenizer.tokenizer, token)) is None:
                text = model.tokenizer.decode([token])
                raw = text.encode()
            else:
                text = "".join(f"\\x{byte:02x}" for byte in raw)
            listed.append({"token": text, "logprob": logprob, "bytes": list(raw)})
    return listed


def usage(transcript: Transcript) -> dict[str, Any]:
    """Return OpenAI's usage."""
    return {"type": "duration", "seconds": transcript.duration}
