"""Parts of the answers about speech, in OpenAI's shapes with ours beside them. Called by `transcriptions`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from transept.serving.http.token_logprobs import bytes_of
from transept.speech.options import TRANSLATES_TO
from transept.speech.segments import Segment, Word
from transept.speech.speech_model import SpeechModel
from transept.speech.transcript import Transcript, TranscriptionInfo


class Usage(TypedDict):
    """OpenAI's account of what was done. seconds: of the recording."""

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
    """A word, its times in seconds, the probability of its tokens, and who says it."""

    word: str
    start: float
    end: float
    probability: float
    speaker: NotRequired[str]


class VerboseTranscription(TypedDict):
    """verbose_json: OpenAI's fields, and what else is known. language: of the text."""

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
    """What is new of the text."""

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
    """With progress: what is known before the first segment."""

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
            {
                **_word(word),
                "word": word.word.strip(),
                **({} if segment.speaker is None else {"speaker": segment.speaker}),
            }
            for segment in transcript.segments
            for word in segment.words or ()
        ]
    if transcript.options.target_language is not None:
        answer["target_language"] = transcript.options.target_language
    answer["language_probability"] = transcript.language_probability
    answer["language_probabilities"] = transcript.language_probabilities
    answer["duration_after_vad"] = transcript.duration_after_vad
    answer["missed_speech"] = [list(stretch) for stretch in transcript.missed_speech]
    answer["warnings"] = transcript.warnings
    answer["reason"] = transcript.reason
    answer["usage"] = usage(transcript)
    return answer


def _name(model: SpeechModel, language: str) -> str:
    """Return a language's English name, or its code if the model has no name for it."""
    return next((name for name, code in model.spec.language_names.items() if code == language), language)


def diarized_answer(model: SpeechModel, transcript: Transcript) -> dict[str, Any]:
    """OpenAI's diarized JSON: the text, and segments with their speakers."""
    return {
        "task": model.task(transcript.language, transcript.options),
        "duration": transcript.duration,
        "text": transcript.text,
        "segments": [segment_event(segment, segment.id) for segment in transcript.segments],
        "usage": usage(transcript),
    }


def info_fields(info: TranscriptionInfo) -> dict[str, Any]:
    """What a stream tells before its first segment."""
    return {
        "language": info.language,
        "language_probability": info.language_probability,
        "duration": info.duration,
        "duration_after_vad": info.duration_after_vad,
        "warnings": info.warnings,
    }


def segment_event(segment: Segment, number: int) -> dict[str, Any]:
    """OpenAI's segment of a stream, which has a speaker, and what else is known of it."""
    event: dict[str, Any] = {
        "type": "transcript.text.segment",
        "id": f"seg_{number}",
        "start": segment.start,
        "end": segment.end,
        "text": segment.text,
        "speaker": segment.speaker or "",
        "seek": segment.seek,
        "tokens": segment.tokens,
        "temperature": segment.temperature,
        "avg_logprob": segment.avg_logprob,
        "compression_ratio": segment.compression_ratio,
        "no_speech_prob": segment.no_speech_prob,
    }
    if segment.words is not None:
        event["words"] = [_word(word) for word in segment.words]
    if segment.language is not None:
        event["language"] = segment.language
    return event


def segment_logprobs(model: SpeechModel, segment: Segment) -> list[dict[str, Any]]:
    r"""OpenAI's log probabilities of tokens; those of timestamps are left out, as they are no text.

    A token that is a part of a character has its bytes, and a ``\xe2`` for each of them as its text.
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


def _word(word: Word) -> dict[str, Any]:
    return {"word": word.word, "start": word.start, "end": word.end, "probability": word.probability}


def usage(transcript: Transcript) -> dict[str, Any]:
    """OpenAI's account of what was done."""
    return {"type": "duration", "seconds": transcript.duration}
