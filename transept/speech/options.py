"""TranscriptionOptions: the options of a transcription, under openai-whisper's and faster-whisper's names.

The Transcriber makes them from a user's keywords; all modes read them, and the Transcript repeats them. The command's
flags and the API's fields are made from these declarations. SpeechModel checks the options that depend on a model, such
as languages and tasks. Imports neither NumPy nor torch.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

from transept.core.request.adapter_options import LORA
from transept.core.request.guided import GUIDED, Guide
from transept.core.request.keywords import DEFAULT_BOOST, KEYWORD_BOOST, keywords
from transept.errors import ParameterError
from transept.options import (
    MAX_INTEGER,
    MAX_LENGTH_PENALTY,
    MAX_PATIENCE,
    MAX_SEED,
    Option,
    declared,
    declares_options,
    made_of,
    refusal,
    take_options,
)
from transept.speech.glossary import glossary_terms
from transept.speech.option_values import (
    audio_track,
    clip_times,
    encoder_context,
    language_or_none,
    pattern,
    prompt,
    temperatures,
    token_ids,
)
from transept.speech.redaction import redacted_kinds
from transept.speech.speaker_options import OF_SPEAKERS, SpeakerOptions
from transept.speech.vad.options import RECORDING, VadOptions

DEFAULT_MODEL = "base"
TASKS = ("transcribe", "translate")
AUTO, SEQUENTIAL, BATCHED = MODES = ("auto", "sequential", "batched")
TRANSLATES_TO = "en"  # target language of the task "translate" without target_language, as in Whisper
FALLBACK_TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
MOST_LENGTH_PENALTY = 100.0  # a power; beyond it numbers overflow
SHORTEST_CHUNK = 2.0  # seconds
DEFAULT_BEST_OF = 5  # as in faster-whisper, and in openai-whisper's command
PATIENT_BEAMS = 5  # beams with patience and no beam_size, as in openai-whisper's and faster-whisper's commands
BEAMS = {"fast": 1, "balanced": 3, "best": 5}  # of each quality; 3 bring most of the gain of 5, for less time
DEFAULT_VAD_OPTIONS = VadOptions()
PREPEND_PUNCTUATIONS = "\"'“¿([{-"
APPEND_PUNCTUATIONS = "\"'.。,，!！?？:：”)]}、"  # noqa: RUF001  full-width marks are meant

SPEECH, TIMES, DECODING = "speech and language", "times", "decoding"
speech, times, recording, decoding = (partial(Option, group=each) for each in (SPEECH, TIMES, RECORDING, DECODING))
NOT_OF_ALIGNMENT = ("task", "target_language", "word_timestamps", *OF_SPEAKERS, "glossary", "redact", "guided")


@dataclass(frozen=True)
class SpeechOptions:
    """Options of a transcription, apart from those about speakers."""

    language: Annotated[
        str | None,
        speech(
            "language spoken, as code or name: de, de-AT, German",
            'Case does not matter. None or "auto": detect it.',
            metavar="NAME",
            default="auto, detected",
            parse=language_or_none,
        ),
    ] = None
    target_language: Annotated[
        str | None,
        speech(
            "language to write, if not the spoken one; Whisper writes English",
            "A code or name. None: the language that is spoken.",
            aliases=("target", "tgt_lang"),
            metavar="NAME",
            parse=language_or_none,
        ),
    ] = None
    task: Annotated[
        Literal["transcribe", "translate"] | None,
        speech(
            "transcribe (default), or translate the speech to English",
            '"translate" writes target_language, by default English. None: translate if target_language is '
            "set, otherwise transcribe.",
            metavar="TASK",
        ),
    ] = None
    quality: Annotated[
        Literal["fast", "balanced", "best"] | None,
        speech(
            "fast: greedy, balanced (default): 3 beams, best: 5 beams",
            "None: balanced in auto mode, otherwise fast. beam_size takes its place.",
            metavar="LEVEL",
            default="",
        ),
    ] = None
    temperature: Annotated[
        float | tuple[float, ...],
        decoding(
            "0: the most likely token; above 0: sample",
            "Of several, the next one is tried if a window's text is too repetitive (compression_ratio_threshold) "
            "or too unlikely (logprob_threshold). At most 101 temperatures.",
            metavar="T",
            default="0",
            parse=temperatures,
        ),
    ] = FALLBACK_TEMPERATURES
    beam_size: Annotated[
        int | None,
        decoding(
            "width of a beam search at temperature 0",
            aliases=("num_beams",),
            metavar="N",
            default="none",
            ge=1,
            le=MAX_INTEGER,
        ),
    ] = None
    best_of: Annotated[
        int | None,
        decoding(
            "samples at a temperature above 0, of which the most likely is kept",
            "None: one. The default is 5, or the engine's max_num_seqs if that is lower.",
            metavar="N",
            ge=1,
            le=MAX_INTEGER,
        ),
    ] = DEFAULT_BEST_OF
    patience: Annotated[
        float | None,
        decoding(
            "hypotheses that a beam search collects, as a multiple of its width (5 if none is set)",
            metavar="X",
            default="1",
            gt=0,
            le=MAX_PATIENCE,
        ),
    ] = None
    length_penalty: Annotated[
        float | None,
        decoding(
            "above 1 favours long texts among beams and samples, below 1 short ones",
            "They are ranked by ``cumulative_logprob / length**length_penalty``, as in transformers and CTranslate2. "
            "openai-whisper's length_penalty is gnmt_length_penalty.",
            metavar="X",
            default="1, the mean log probability",
            ge=-MAX_LENGTH_PENALTY,
            le=MAX_LENGTH_PENALTY,
        ),
    ] = None
    gnmt_length_penalty: Annotated[
        float | None,
        decoding(
            "rank by length as Google's NMT and openai-whisper do, with this alpha",
            "The formula is equation 14 of Wu et al. 2016, in place of length_penalty's.",
            metavar="A",
            ge=0,
            le=MOST_LENGTH_PENALTY,
        ),
    ] = None
    repetition_penalty: Annotated[
        float | None, decoding("above 1 makes earlier tokens less likely", "See SamplingParams.", metavar="X", gt=0)
    ] = None
    no_repeat_ngram_size: Annotated[
        int | None,
        decoding("let no sequence of this many tokens occur twice in a window", metavar="N", ge=0, le=MAX_INTEGER),
    ] = None
    compression_ratio_threshold: Annotated[
        float | None, decoding("a text that compresses better fails: too repetitive", "None: never.", metavar="X", ge=0)
    ] = 2.4
    logprob_threshold: Annotated[
        float | None,
        decoding(
            "a text with a lower mean log probability fails",
            "None: never.",
            aliases=("log_prob_threshold",),
            metavar="X",
        ),
    ] = -1.0
    no_speech_threshold: Annotated[
        float | None,
        decoding(
            "skip a failed window whose probability of silence is above this",
            "A window is skipped if its probability of silence is above this, and the mean log probability of its "
            "text is not above logprob_threshold.",
            metavar="P",
            ge=0,
        ),
    ] = 0.6
    condition_on_previous_text: Annotated[
        bool,
        speech(
            "prompt each window with the previous text (default); --no- helps where texts repeat themselves",
            "The previous text is not used after a window that was decoded above prompt_reset_on_temperature.",
            aliases=("condition_on_prev_tokens",),
        ),
    ] = True
    prompt_reset_on_temperature: Annotated[
        float,
        decoding(
            "drop the previous text from the prompt after a window decoded above this temperature", metavar="T", ge=0
        ),
    ] = 0.5
    initial_prompt: Annotated[
        str | tuple[int, ...] | None,
        speech(
            "text that the recording seems to follow: names, spelling, style",
            "Also token ids.",
            aliases=("prompt",),
            metavar="TEXT",
            parse=prompt,
        ),
    ] = None
    carry_initial_prompt: Annotated[bool, speech("put --initial-prompt before every window, not only the first")] = (
        False
    )
    prefix: Annotated[str | None, speech("text that the first window begins with", metavar="TEXT")] = None
    hotwords: Annotated[
        str | None,
        speech(
            "words to expect in every window, written in a prompt before it",
            "The prompt has room for a few dozen words. For more, or for a model without prompts, use keywords.",
            metavar="TEXT",
        ),
    ] = None
    keywords: Annotated[
        tuple[tuple[str, float | None], ...],
        speech(
            "terms to prefer where they are spoken, such as names: TERM,TERM,...",
            "A list of texts or a mapping of texts to boosts, up to thousands. They need no prompt: they change the "
            "probabilities of tokens that begin or continue a term.",
            metavar="TERM,...",
            default="",
            parse=keywords,
            also="Mapping[str, float] | Sequence[str] | str | None",
        ),
    ] = ()
    keyword_boost: Annotated[float, dataclasses.replace(KEYWORD_BOOST, group=DECODING)] = DEFAULT_BOOST
    guided: Annotated[
        Guide | None,
        dataclasses.replace(
            GUIDED,
            help="the form that a window's text must have, for voice commands",
            more=f"{GUIDED.more} A window is then one segment, and is decoded once, without other suppressions.",
            group=DECODING,
        ),
    ] = None
    glossary: Annotated[
        tuple[tuple[str, str], ...],
        speech(
            "file of corrections, one a line: wrong = right",
            "Whole words are replaced, in any case. Also a dict, or the lines as text; in Python a file is a "
            "pathlib.Path. A right side in lower case takes the case of the text.",
            metavar="FILE",
            default="",
            parse=glossary_terms,
            also="Mapping[str, str] | pathlib.Path | str | None",
        ),
    ] = ()
    redact: Annotated[
        tuple[str, ...],
        speech(
            "replace private parts by their kind: numbers, phones, emails, urls; names, with a plugin",
            "Only numbers in digits are replaced.",
            metavar="KIND,KIND,...",
            default="",
            parse=redacted_kinds,
            also="Sequence[str] | str | None",
        ),
    ] = ()
    suppress_blank: Annotated[
        bool,
        decoding(
            "no window begins with a blank or with its end (default); --no- allows it",
            "For families with a token for silence.",
        ),
    ] = True
    suppress_tokens: Annotated[
        tuple[int, ...],
        decoding(
            "token ids never to write; -1: all non-speech tokens (default); None: none",
            "Also as comma-separated text.",
            metavar="ID,ID,...",
            default="",
            parse=partial(token_ids, lowest=-1),
            also="str | None",
        ),
    ] = (-1,)
    suppress_numerals: Annotated[
        bool, decoding("write numbers as words: no token with a digit, a per cent sign or a currency")
    ] = False
    suppress_regex: Annotated[
        str | None,
        decoding(
            "never write a token whose whole text, including its leading blank, matches",
            "As in whisper.cpp.",
            metavar="RE",
            parse=pattern,
        ),
    ] = None
    without_timestamps: Annotated[bool, times("do not ask the model for times: a window is one segment")] = False
    max_initial_timestamp: Annotated[
        float | None, times("latest start of a window's first segment; None: anywhere", metavar="S", ge=0)
    ] = 1.0
    max_new_tokens: Annotated[
        int | None,
        decoding(
            "at most this many tokens for each window", aliases=("max_tokens",), metavar="N", ge=1, le=MAX_INTEGER
        ),
    ] = None
    token_logprobs: Annotated[bool, decoding("keep the log probability of every token, for --json and .json files")] = (
        False
    )
    word_timestamps: Annotated[bool, times("find the time and the probability of every word")] = False
    refine_word_times: Annotated[
        bool,
        times(
            "words start and end where the sound changes (default); --no- keeps the attention's times",
            "No effect in sequential mode, whose times are openai-whisper's.",
        ),
    ] = True
    prepend_punctuations: Annotated[
        str, times("marks that belong to the word after them", metavar="MARKS", default="")
    ] = PREPEND_PUNCTUATIONS
    append_punctuations: Annotated[
        str, times("marks that belong to the word before them", metavar="MARKS", default="")
    ] = APPEND_PUNCTUATIONS
    clip_timestamps: Annotated[
        tuple[float, ...],
        recording(
            "transcribe only these stretches: start,end,start,end,... in seconds",
            'Also dicts, [{"start": 0, "end": 10}]; the last end may be left out.',
            metavar="S,S,...",
            default="",
            parse=clip_times,
            also="Sequence[Mapping[str, float]] | str | None",
        ),
    ] = ()
    hallucination_silence_threshold: Annotated[
        float | None,
        times(
            "skip silence longer than this around words that look made up; sets --word-timestamps",
            "No effect in batched mode.",
            metavar="S",
            ge=0,
        ),
    ] = None
    multilingual: Annotated[bool, speech("detect the language of each window, and cut the window where it changes")] = (
        False
    )
    language_detection_segments: Annotated[
        int,
        speech(
            "detect the language from at most this many windows",
            "Detection stops at the first window above language_detection_threshold. Otherwise, the language of most "
            "windows is used.",
            metavar="N",
            ge=1,
            le=MAX_INTEGER,
        ),
    ] = 1
    language_detection_threshold: Annotated[
        float, speech("probability at which language detection stops", metavar="P", ge=0)
    ] = 0.5
    audio_track: Annotated[
        int | str | None,
        recording(
            "audio track of a video: its number, from 0, or its language, such as eng or English",
            "None: FFmpeg's choice, or the loudest track if that one is silent.",
            metavar="N",
            parse=audio_track,
        ),
    ] = None
    even_loudness: Annotated[
        bool,
        recording(
            "raise quiet speech to the level of the rest first, by up to 40 dB",
            "For recordings with a low level, or with a speaker far from the microphone.",
        ),
    ] = False
    chunk_length: Annotated[
        float | None,
        recording(
            "longest window, in seconds",
            aliases=("chunk_length_s",),
            metavar="S",
            default="the model's window, 30 for Whisper",
            ge=SHORTEST_CHUNK,
        ),
    ] = None
    encoder_context: Annotated[
        str | float | None,
        recording(
            "encode S seconds of silence after a window's audio, not the whole window; auto: as `transept calibrate` "
            "found",
            "For models whose encoder reads windows of one length. A window whose text is in doubt is encoded and "
            "decoded again as a whole.",
            metavar="S",
            parse=encoder_context,
        ),
    ] = None
    mode: Annotated[
        Literal["auto", "sequential", "batched"],
        recording(
            "auto (default), sequential: openai-whisper's algorithm, or batched: windows side by side, the fastest",
            "auto leaves out long silence, decodes missed speech again, and decodes passages of one to two minutes "
            "concurrently, window after window. batched leaves out all silence and cuts windows in pauses; a window's "
            "text is the next one's prompt only within chains of up to four windows, and segments are sentences.",
            metavar="MODE",
            default="",
        ),
    ] = "auto"
    batched: Annotated[bool, recording("the same as --mode batched")] = False
    batch_size: Annotated[
        int | None,
        recording(
            "at most this many windows are decoded at a time, over all files",
            "For batched and auto mode. In Python it counts the windows of one recording; max_num_seqs bounds all.",
            metavar="N",
            default="16 of a file",
            ge=1,
            le=MAX_INTEGER,
        ),
    ] = None
    vad: Annotated[
        bool,
        recording("leave out silence first in sequential mode (the other modes always do)", aliases=("vad_filter",)),
    ] = False
    vad_options: Annotated[
        VadOptions,
        recording(
            "what counts as silence: threshold=0.4,speech_pad_ms=200",
            "VadOptions, or a dict of them. As text ``name=value,...`` or JSON.",
            aliases=("vad_parameters",),
            metavar="NAME=VALUE,...",
            default="",
            parse=partial(made_of, VadOptions),
            also="str",
        ),
    ] = DEFAULT_VAD_OPTIONS
    lora: Annotated[str | None, dataclasses.replace(LORA, group=SPEECH)] = None
    seed: Annotated[int, decoding("seed of the samples", metavar="N", ge=0, le=MAX_SEED)] = 0

    @property
    def temperatures(self) -> tuple[float, ...]:
        """The temperatures in the order in which they are tried."""
        return self.temperature if isinstance(self.temperature, tuple) else (self.temperature,)

    @property
    def num_beams(self) -> int:
        """The width of the beam search at temperature 0; 1: none."""
        if self.beam_size is None and self.patience is not None and self.quality is None:
            return PATIENT_BEAMS
        return self.beam_size or BEAMS[self.quality or ("balanced" if self.mode == AUTO else "fast")]

    def clips(self, length: int, per_second: int) -> list[tuple[int, int]]:
        """Return the stretches to transcribe as (begin, end), for a recording of `length` frames or samples."""
        points = [min(round(time * per_second), length) for time in self.clip_timestamps] or [0]
        if len(points) % 2:
            points.append(length)
        return list(zip(points[::2], points[1::2], strict=True))


@declares_options("transcription has no option")
@dataclass(frozen=True)
class TranscriptionOptions(SpeakerOptions, SpeechOptions):
    """Options of a transcription.

    Raises ParameterError for an unknown option, a value out of range, or options that contradict each other.
    """

    def __post_init__(self) -> None:
        take_options(self)
        freeze = object.__setattr__
        if self.hallucination_silence_threshold is not None:
            freeze(self, "word_timestamps", True)
        if self.guided is not None:  # no form has timestamps
            freeze(self, "without_timestamps", True)
        self._take_speakers()
        self._check_contradictions()
        if self.batched:
            freeze(self, "mode", BATCHED)
        freeze(self, "batched", self.mode == BATCHED)

    def _check_contradictions(self) -> None:
        if self.batched and self.mode == SEQUENTIAL:
            raise refusal(self, "{batched=} means the mode batched; leave it out for {mode=}")
        if self.vad_options != DEFAULT_VAD_OPTIONS and self.mode == SEQUENTIAL and not self.vad:
            given, default = self.vad_options, DEFAULT_VAD_OPTIONS
            part = next(name for name in declared(VadOptions) if getattr(given, name) != getattr(default, name))
            part = f"vad_options.{part}"
            message = f"{{{part}}} defines silence; set {{vad=True}} to leave it out in sequential mode"
            raise ParameterError(message, param=part, others=["vad"])
        if self.length_penalty is not None and self.gnmt_length_penalty is not None:
            raise refusal(self, "{length_penalty=} and {gnmt_length_penalty=} are two formulas; give one of them")
        if self.multilingual and self.language is not None:
            message = "{multilingual=} detects the language of every window, so {language=} has no meaning"
            raise refusal(self, message, "language")
