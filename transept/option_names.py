"""The names of a user's options: unknown ones are refused with what was probably meant, known ones shown by ``help``.

Used by the dataclasses of options and by the calls that take them as ``**options``. Knows no option by itself.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter
from typing import Any, TypeVar

from transept.errors import ParameterError, suggest

Options = TypeVar("Options")
Call = TypeVar("Call", bound=Callable[..., Any])

# Names of openai-whisper, faster-whisper, WhisperX, whisper.cpp and transformers, and ours for the same.
ELSEWHERE: Mapping[str, tuple[str, ...]] = {
    "batch_size": ("max_num_seqs",),
    "beams": ("beam_size", "num_beams"),
    "chunk_length_s": ("chunk_length",),
    "chunk_size": ("chunk_length",),
    "compute_type": ("quantization", "dtype"),
    "cache_dir": ("model_dir",),
    "condition_on_prev_tokens": ("condition_on_previous_text",),
    "cpu_threads": ("num_threads", "threads"),
    "device_index": ("device",),
    "download_root": ("model_dir",),
    "entropy_thold": ("compression_ratio_threshold",),
    "format": ("output_format", "response_format"),
    "fp16": ("dtype",),
    "local_files_only": ("offline",),
    "log_prob_threshold": ("logprob_threshold",),
    "log_progress": ("progress",),
    "logprob_thold": ("logprob_threshold",),
    "max_len": ("max_line_width",),
    "max_length": ("max_tokens", "max_new_tokens"),
    "max_new_tokens": ("max_tokens",),
    "min_new_tokens": ("min_tokens",),
    "model_size_or_path": ("model",),
    "no_fallback": ("temperature_increment_on_fallback",),
    "no_speech_thold": ("no_speech_threshold",),
    "no_timestamps": ("without_timestamps",),
    "num_beams": ("beam_size",),
    "print_colors": ("print_confidence",),
    "prompt": ("initial_prompt",),
    "return_timestamps": ("word_timestamps",),
    "sample_len": ("max_new_tokens",),
    "stream": ("verbose",),
    "temperatures": ("temperature",),
    "threads": ("num_threads",),
    "torch_dtype": ("dtype",),
    "translate": ("task",),
    "vad_filter": ("vad",),
    "vad_offset": ("vad_neg_threshold", "vad_options"),
    "vad_onset": ("vad_threshold", "vad_options"),
    "vad_parameters": ("vad_options", "vad_threshold"),
    "words": ("word_timestamps",),
    **{f"output_{name}": ("output_format",) for name in ("csv", "json", "lrc", "srt", "txt", "vtt")},
    **{
        f"vad_{name}": ("vad_options",)
        for name in (
            *("threshold", "neg_threshold", "min_speech_duration_ms", "max_speech_duration_s"),
            *("min_silence_duration_ms", "speech_pad_ms"),
        )
    },
}

SPEAKERS = "A diarizer finds by itself how many speakers there are: diarize."
PROGRESS = "progress=True shows a bar, and a terminal of the command has one."
ANSWERS: Mapping[str, str] = {  # to names for which there is none of ours
    "align_model": "The model times words by itself: word_timestamps.",
    "batch_size": "Windows share the engine's batch, which max_num_seqs bounds where the model is loaded.",
    "hf_token": "A token is read from the environment: HF_TOKEN.",
    "log_progress": PROGRESS,
    "max_speakers": SPEAKERS,
    "min_speakers": SPEAKERS,
    "num_workers": "One engine serves all calls and threads at once.",
    "print_progress": PROGRESS,
    "stream": "Transcriber.stream gives each segment as it is found.",
    "vad_method": "silero-vad finds where someone speaks.",
    "verbose": "Transcriber.stream gives each segment as it is found; progress shows a bar.",
}


def refuses_unknown(what: str) -> Callable[[type[Options]], type[Options]]:
    """Decorator of a dataclass whose fields are options: made with any other keyword, it raises ParameterError.

    what: begins the message, such as ``"Engine has no option"``. The constructor's signature stays that of the fields.
    """

    def decorate(cls: type[Options]) -> type[Options]:
        make = cls.__init__
        known = [each.name for each in dataclasses.fields(cls)]  # type: ignore[arg-type]  # a dataclass, as said

        @functools.wraps(make)
        def make_known(self: Options, *args: Any, **options: Any) -> None:
            refuse_unknown(what, options, known)
            make(self, *args, **options)

        cls.__init__ = make_known  # type: ignore[method-assign, assignment]
        return cls

    return decorate


def finite(value: Any) -> float:
    """A number as a float; infinity for one that is too large to be one."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def made_of(cls: type[Options], what: str, given: Mapping[str, Any]) -> Options:
    """Options from a mapping. Raises ParameterError for names that are unknown or no names; what: as above."""
    refuse_unknown(what, given, [each.name for each in dataclasses.fields(cls)])  # type: ignore[arg-type]
    return cls(**given)


def refuse_unknown(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise ParameterError for the first name that is not known, with the nearest or the equivalent one that is."""
    known = list(known)
    for name in given:
        if name not in known:
            raise ParameterError(f"{what} {name!r}.{elsewhere(name, known) or suggest(str(name), known)}")


def refuse_misplaced(given: Iterable[str], known: Iterable[str], others: Iterable[str], where: str) -> None:
    """Raise ParameterError for the first name that is not known, but an option of another call, or stands for one.

    where: what to call, with NAME for the option, such as ``"Transcriber(model, NAME=...)"``.
    """
    known, others = list(known), list(others)
    for name in given:
        stands_for = ELSEWHERE.get(name, ())
        if name not in known and not any(ours in known for ours in stands_for):
            for ours in (name, *stands_for):
                if ours in others:
                    raise ParameterError(f"{name} is not set here, but by {where.replace('NAME', ours)}")


def elsewhere(name: str, known: Iterable[str], shown: Callable[[str], str] = repr) -> str:
    """The tail of a message about a name that other programs have: what it is here; empty for any other name.

    known: the names that there are. shown: how one of them is written.
    """
    known = list(known)
    if meant := [shown(ours) for ours in ELSEWHERE.get(name, ()) if ours in known]:
        return f" Here that is {' or '.join(meant)}."
    return f" {ANSWERS[name]}" if name in ANSWERS else ""


def shows_options(*of: Callable[..., Any], without: Iterable[str] = ()) -> Callable[[Call], Call]:
    """Decorator of a call with ``**options``: its signature, as ``help`` and notebooks show it, names them one by one.

    of: the dataclasses and functions whose keywords the options are. without: those that are not.
    """

    def decorate(call: Call) -> Call:
        signature = inspect.signature(call)
        shown = {name: each for name, each in signature.parameters.items() if each.kind is not Parameter.VAR_KEYWORD}
        for taker in of:
            for name, each in inspect.signature(taker).parameters.items():
                if each.kind is not Parameter.VAR_KEYWORD and name not in without:
                    shown.setdefault(name, each.replace(kind=Parameter.KEYWORD_ONLY))
        call.__signature__ = signature.replace(parameters=[*shown.values()])  # type: ignore[attr-defined]
        return call

    return decorate
