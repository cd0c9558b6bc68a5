"""LiveOptions: the options that only live transcription has. Imports neither NumPy nor torch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

from transept.options import Option, declares_options, take_options
from transept.speech.speaker_options import OF_SPEAKERS

AUTO, ATTENTION, AGREEMENT = POLICIES = ("auto", "attention", "agreement")

LIVE = "live"
live = partial(Option, group=LIVE)

# Options of transcriptions that live transcription does not take.
NOT_OF_LIVE = (
    *("prefix", "temperature", "best_of", "prompt_reset_on_temperature", "glossary", "redact", "without_timestamps"),
    *("max_initial_timestamp", "token_logprobs", "word_timestamps", "refine_word_times", "clip_timestamps"),
    *("hallucination_silence_threshold", "multilingual", "language_detection_segments", "channel", "audio_track"),
    *("chunk_length", "encoder_context", "mode", "batched", "batch_size", "vad", "vad_options", "seed"),
    *("carry_initial_prompt", "even_loudness", "max_new_tokens", "guided", *OF_SPEAKERS),
)


@declares_options("live transcription has no option")
@dataclass(frozen=True)
class LiveOptions:
    """Options of live transcription, beside the options that it shares with other transcriptions.

    Raises ParameterError for an unknown option or a value out of range.
    """

    policy: Annotated[
        Literal["auto", "attention", "agreement"],
        live(
            "when words are final: attention, agreement, or auto (default), the better one for the model",
            "attention: words for which the decoder attends to audio at least `frontier` seconds old. agreement: words "
            "that are equal in `passes` passes in succession.",
            metavar="POLICY",
            default="",
        ),
    ] = "auto"
    min_chunk: Annotated[float, live("new audio between two passes over an utterance", metavar="S", ge=0.1, le=10)] = (
        0.5
    )
    passes: Annotated[
        int, live("passes in succession that must agree on a word; for agreement", metavar="N", ge=2, le=10)
    ] = 2
    frontier: Annotated[
        float | None,
        live(
            "audio at the end whose words are not final yet; for attention",
            "It is divided by the word's probability, so unlikely words wait longer, up to five times as long. None: "
            "0.5 for decoders of at most four layers, as in tiny, and else 0.7.",
            metavar="S",
            default="by model",
            ge=0.0,
            le=5,
        ),
    ] = None
    encoder_margin: Annotated[
        float | None,
        live(
            "silence that the encoder reads after the audio; None: up to the model's whole window",
            metavar="S",
            ge=0.0,
            le=30,
        ),
    ] = 2.0
    longest_audio: Annotated[
        float,
        live(
            "length of an utterance's audio beyond which the audio of older final words is dropped",
            "Their text stays as the prompt. A pass may read some seconds more if few words are final.",
            metavar="S",
            ge=4,
            le=25,
        ),
    ] = 12.0
    vad_threshold: Annotated[float, live("lowest probability that counts as speech", metavar="P", gt=0.0, lt=1.0)] = 0.5
    vad_padding_ms: Annotated[
        float, live("audio to keep before an utterance's speech", metavar="MS", ge=0, le=2000)
    ] = 300
    vad_silence_ms: Annotated[float, live("silence that ends an utterance", metavar="MS", ge=64, le=10_000)] = 500

    def __post_init__(self) -> None:
        take_options(self)
