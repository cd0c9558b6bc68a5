"""Transept: an engine for encoder/decoder transformers.

Every public name is loaded on first use (PEP 562), so `import transept` imports neither torch nor transformers.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

# How long PyTorch's threads look for work before they sleep, in rounds: some 70 microseconds. By OpenMP's default they
# spin for milliseconds, in which nobody else has their cores. It is read as torch is loaded.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")

if TYPE_CHECKING:
    from transept import aio as aio
    from transept.core.config import EngineConfig
    from transept.core.engine import Engine
    from transept.core.jobs.job import Gather, Job, Offload, Submit, Wait
    from transept.core.outputs import CompletionOutput, RequestOutput
    from transept.core.request.limits import Limits
    from transept.core.request.prompt_probe import PromptProbe
    from transept.core.request.prompts import (
        ExplicitEncoderDecoderPrompt,
        MultiModalPrompt,
        Request,
        TextPrompt,
        TokensPrompt,
    )
    from transept.core.request.sampling_params import SamplingParams
    from transept.errors import (
        CapacityError,
        CheckpointError,
        EngineClosedError,
        EngineDeadError,
        ForkedProcessError,
        KernelsNotBuiltError,
        MediaError,
        MediaTooLargeError,
        MissingPackageError,
        ParameterError,
        PluginError,
        PluginFailedError,
        PromptError,
        QueueFullError,
        RequestFailedError,
        TranseptError,
        UnsupportedModelError,
        UnsupportedTaskError,
    )
    from transept.speech.options import TranscriptionOptions
    from transept.speech.output.subtitles import SubtitleLayout
    from transept.speech.segments import Segment, Word
    from transept.speech.stream import SegmentStream
    from transept.speech.transcriber import (
        Transcriber,
        detect_language,
        stream_transcribe,
        transcribe,
        transcribe_many,
    )
    from transept.speech.transcript import DetectedLanguage, Transcript, TranscriptionInfo
    from transept.speech.vad.options import VadOptions
    from transept.text.generated_text import GeneratedText, TextUpdate
    from transept.text.generator import TextGenerator
    from transept.text.tasks import generate, summarize, translate
    from transept.vision.image_text import ImageText
    from transept.vision.reader import VisionReader
    from transept.vision.tasks import caption, read_text

_LAZY_IMPORTS = {
    "Engine": "transept.core.engine",
    "EngineConfig": "transept.core.config",
    "Gather": "transept.core.jobs.job",
    "Job": "transept.core.jobs.job",
    "Offload": "transept.core.jobs.job",
    "PromptProbe": "transept.core.request.prompt_probe",
    "Request": "transept.core.request.prompts",
    "SamplingParams": "transept.core.request.sampling_params",
    "Submit": "transept.core.jobs.job",
    "Wait": "transept.core.jobs.job",
    "CompletionOutput": "transept.core.outputs",
    "RequestOutput": "transept.core.outputs",
    "ExplicitEncoderDecoderPrompt": "transept.core.request.prompts",
    "MultiModalPrompt": "transept.core.request.prompts",
    "TextPrompt": "transept.core.request.prompts",
    "TokensPrompt": "transept.core.request.prompts",
    "CapacityError": "transept.errors",
    "CheckpointError": "transept.errors",
    "EngineClosedError": "transept.errors",
    "EngineDeadError": "transept.errors",
    "ForkedProcessError": "transept.errors",
    "KernelsNotBuiltError": "transept.errors",
    "MediaError": "transept.errors",
    "MediaTooLargeError": "transept.errors",
    "MissingPackageError": "transept.errors",
    "ParameterError": "transept.errors",
    "PluginError": "transept.errors",
    "PluginFailedError": "transept.errors",
    "Limits": "transept.core.request.limits",
    "PromptError": "transept.errors",
    "QueueFullError": "transept.errors",
    "RequestFailedError": "transept.errors",
    "TranseptError": "transept.errors",
    "UnsupportedModelError": "transept.errors",
    "UnsupportedTaskError": "transept.errors",
    "GeneratedText": "transept.text.generated_text",
    "TextGenerator": "transept.text.generator",
    "TextUpdate": "transept.text.generated_text",
    "generate": "transept.text.tasks",
    "summarize": "transept.text.tasks",
    "translate": "transept.text.tasks",
    "DetectedLanguage": "transept.speech.transcript",
    "Segment": "transept.speech.segments",
    "SegmentStream": "transept.speech.stream",
    "SubtitleLayout": "transept.speech.output.subtitles",
    "Transcriber": "transept.speech.transcriber",
    "Transcript": "transept.speech.transcript",
    "TranscriptionInfo": "transept.speech.transcript",
    "TranscriptionOptions": "transept.speech.options",
    "VadOptions": "transept.speech.vad.options",
    "Word": "transept.speech.segments",
    "detect_language": "transept.speech.transcriber",
    "stream_transcribe": "transept.speech.transcriber",
    "transcribe": "transept.speech.transcriber",
    "transcribe_many": "transept.speech.transcriber",
    "ImageText": "transept.vision.image_text",
    "VisionReader": "transept.vision.reader",
    "caption": "transept.vision.tasks",
    "read_text": "transept.vision.tasks",
}

__all__ = [
    "CapacityError",
    "CheckpointError",
    "CompletionOutput",
    "DetectedLanguage",
    "Engine",
    "EngineClosedError",
    "EngineConfig",
    "EngineDeadError",
    "ExplicitEncoderDecoderPrompt",
    "ForkedProcessError",
    "Gather",
    "GeneratedText",
    "ImageText",
    "Job",
    "KernelsNotBuiltError",
    "Limits",
    "MediaError",
    "MediaTooLargeError",
    "MissingPackageError",
    "MultiModalPrompt",
    "Offload",
    "ParameterError",
    "PluginError",
    "PluginFailedError",
    "PromptError",
    "PromptProbe",
    "QueueFullError",
    "Request",
    "RequestFailedError",
    "RequestOutput",
    "SamplingParams",
    "Segment",
    "SegmentStream",
    "Submit",
    "SubtitleLayout",
    "TextGenerator",
    "TextPrompt",
    "TextUpdate",
    "TokensPrompt",
    "Transcriber",
    "Transcript",
    "TranscriptionInfo",
    "TranscriptionOptions",
    "TranseptError",
    "UnsupportedModelError",
    "UnsupportedTaskError",
    "VadOptions",
    "VisionReader",
    "Wait",
    "Word",
    "caption",
    "detect_language",
    "generate",
    "read_text",
    "stream_transcribe",
    "summarize",
    "transcribe",
    "transcribe_many",
    "translate",
]


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
    return sorted({*globals(), *__all__})
