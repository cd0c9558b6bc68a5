"""Transept: an engine for encoder/decoder transformers.

Every public name is loaded on first use (PEP 562), so `import transept` imports neither torch nor transformers.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

# Rounds that PyTorch's idle threads spin before they sleep: about 70 microseconds. By OpenMP's default they spin for
# milliseconds and keep their cores busy. OpenMP reads the variable when torch is loaded.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")

if TYPE_CHECKING:
    from transept import aio as aio
    from transept.core.config import EngineConfig as EngineConfig
    from transept.core.engine import Engine as Engine
    from transept.core.jobs.job import Gather as Gather
    from transept.core.jobs.job import Job as Job
    from transept.core.jobs.job import Offload as Offload
    from transept.core.jobs.job import Signal as Signal
    from transept.core.jobs.job import Submit as Submit
    from transept.core.jobs.job import Wait as Wait
    from transept.core.outputs import CompletionOutput as CompletionOutput
    from transept.core.outputs import RequestOutput as RequestOutput
    from transept.core.request.limits import Limits as Limits
    from transept.core.request.prompt_probe import PromptProbe as PromptProbe
    from transept.core.request.prompts import ExplicitEncoderDecoderPrompt as ExplicitEncoderDecoderPrompt
    from transept.core.request.prompts import MultiModalPrompt as MultiModalPrompt
    from transept.core.request.prompts import Request as Request
    from transept.core.request.prompts import TextPrompt as TextPrompt
    from transept.core.request.prompts import TokensPrompt as TokensPrompt
    from transept.core.request.sampling_params import SamplingParams as SamplingParams
    from transept.errors import CapacityError as CapacityError
    from transept.errors import CheckpointError as CheckpointError
    from transept.errors import EngineClosedError as EngineClosedError
    from transept.errors import EngineDeadError as EngineDeadError
    from transept.errors import ForkedProcessError as ForkedProcessError
    from transept.errors import KernelsNotBuiltError as KernelsNotBuiltError
    from transept.errors import MediaError as MediaError
    from transept.errors import MediaTooLargeError as MediaTooLargeError
    from transept.errors import MissingPackageError as MissingPackageError
    from transept.errors import ParameterError as ParameterError
    from transept.errors import PluginError as PluginError
    from transept.errors import PluginFailedError as PluginFailedError
    from transept.errors import PromptError as PromptError
    from transept.errors import QueueFullError as QueueFullError
    from transept.errors import RequestFailedError as RequestFailedError
    from transept.errors import TranseptError as TranseptError
    from transept.errors import UnsupportedModelError as UnsupportedModelError
    from transept.errors import UnsupportedTaskError as UnsupportedTaskError
    from transept.speech.live.events import Committed as Committed
    from transept.speech.live.events import Lagging as Lagging
    from transept.speech.live.events import LanguageDetected as LanguageDetected
    from transept.speech.live.events import SpeechStarted as SpeechStarted
    from transept.speech.live.events import SpeechStopped as SpeechStopped
    from transept.speech.live.events import Tentative as Tentative
    from transept.speech.live.events import UtteranceEnded as UtteranceEnded
    from transept.speech.live.stream import LiveStream as LiveStream
    from transept.speech.live_options import LiveOptions as LiveOptions
    from transept.speech.one_call import detect_language as detect_language
    from transept.speech.one_call import stream_transcribe as stream_transcribe
    from transept.speech.one_call import transcribe as transcribe
    from transept.speech.one_call import transcribe_many as transcribe_many
    from transept.speech.options import TranscriptionOptions as TranscriptionOptions
    from transept.speech.output.broken_rules import BrokenRule as BrokenRule
    from transept.speech.output.subtitles import SubtitleLayout as SubtitleLayout
    from transept.speech.segments import Segment as Segment
    from transept.speech.segments import Word as Word
    from transept.speech.stream import SegmentStream as SegmentStream
    from transept.speech.transcriber import Transcriber as Transcriber
    from transept.speech.transcript import DetectedLanguage as DetectedLanguage
    from transept.speech.transcript import Transcript as Transcript
    from transept.speech.transcript import TranscriptionInfo as TranscriptionInfo
    from transept.speech.vad.options import VadOptions as VadOptions
    from transept.speech.voices.store import Voices as Voices
    from transept.text.embedding import TextEmbedding as TextEmbedding
    from transept.text.generated_text import GeneratedText as GeneratedText
    from transept.text.generated_text import TextUpdate as TextUpdate
    from transept.text.generator import TextGenerator as TextGenerator
    from transept.text.scoring import TextScore as TextScore
    from transept.text.tasks import embed as embed
    from transept.text.tasks import generate as generate
    from transept.text.tasks import score as score
    from transept.text.tasks import summarize as summarize
    from transept.text.tasks import translate as translate
    from transept.vision.image_text import ImageText as ImageText
    from transept.vision.reader import VisionReader as VisionReader
    from transept.vision.tasks import caption as caption
    from transept.vision.tasks import read_text as read_text

_NAMES_OF_MODULES = {
    "transept.core.config": "EngineConfig",
    "transept.core.engine": "Engine",
    "transept.core.jobs.job": "Gather Job Offload Signal Submit Wait",
    "transept.core.outputs": "CompletionOutput RequestOutput",
    "transept.core.request.limits": "Limits",
    "transept.core.request.prompt_probe": "PromptProbe",
    "transept.core.request.prompts": "ExplicitEncoderDecoderPrompt MultiModalPrompt Request TextPrompt TokensPrompt",
    "transept.core.request.sampling_params": "SamplingParams",
    "transept.errors": (
        "CapacityError CheckpointError EngineClosedError EngineDeadError ForkedProcessError KernelsNotBuiltError "
        "MediaError MediaTooLargeError MissingPackageError ParameterError PluginError PluginFailedError "
        "PromptError QueueFullError RequestFailedError TranseptError UnsupportedModelError UnsupportedTaskError"
    ),
    "transept.speech.live.events": (
        "Committed Lagging LanguageDetected SpeechStarted SpeechStopped Tentative UtteranceEnded"
    ),
    "transept.speech.live.stream": "LiveStream",
    "transept.speech.live_options": "LiveOptions",
    "transept.speech.one_call": "detect_language stream_transcribe transcribe transcribe_many",
    "transept.speech.options": "TranscriptionOptions",
    "transept.speech.output.broken_rules": "BrokenRule",
    "transept.speech.output.subtitles": "SubtitleLayout",
    "transept.speech.segments": "Segment Word",
    "transept.speech.stream": "SegmentStream",
    "transept.speech.transcriber": "Transcriber",
    "transept.speech.transcript": "DetectedLanguage Transcript TranscriptionInfo",
    "transept.speech.vad.options": "VadOptions",
    "transept.speech.voices.store": "Voices",
    "transept.text.embedding": "TextEmbedding",
    "transept.text.generated_text": "GeneratedText TextUpdate",
    "transept.text.generator": "TextGenerator",
    "transept.text.scoring": "TextScore",
    "transept.text.tasks": "embed generate score summarize translate",
    "transept.vision.image_text": "ImageText",
    "transept.vision.reader": "VisionReader",
    "transept.vision.tasks": "caption read_text",
}
_LAZY_IMPORTS = {name: module for module, names in _NAMES_OF_MODULES.items() for name in names.split()}

__all__ = sorted(_LAZY_IMPORTS)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("transept")
    if name == "aio":
        return importlib.import_module("transept.aio")
    if name not in _LAZY_IMPORTS:
        raise AttributeError(f"module 'transept' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY_IMPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted({*__all__, "aio", "__version__", *(name for name in globals() if name.startswith("__"))})
