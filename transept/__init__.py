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
        ForkedProcessError,
        MediaError,
        ParameterError,
        PluginError,
        PromptError,
        QueueFullError,
        RequestFailedError,
        TranseptError,
        UnsupportedModelError,
    )
    from transept.speech.options import TranscriptionOptions
    from transept.speech.segments import Segment, Word
    from transept.speech.stream import SegmentStream
    from transept.speech.transcriber import Transcriber, stream_transcribe, transcribe
    from transept.speech.transcript import Transcript, TranscriptionInfo
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
    "ForkedProcessError": "transept.errors",
    "MediaError": "transept.errors",
    "ParameterError": "transept.errors",
    "PluginError": "transept.errors",
    "Limits": "transept.core.request.limits",
    "PromptError": "transept.errors",
    "QueueFullError": "transept.errors",
    "RequestFailedError": "transept.errors",
    "TranseptError": "transept.errors",
    "UnsupportedModelError": "transept.errors",
    "GeneratedText": "transept.text.generated_text",
    "TextGenerator": "transept.text.generator",
    "TextUpdate": "transept.text.generated_text",
    "generate": "transept.text.tasks",
    "summarize": "transept.text.tasks",
    "translate": "transept.text.tasks",
    "Segment": "transept.speech.segments",
    "SegmentStream": "transept.speech.stream",
    "Transcriber": "transept.speech.transcriber",
    "Transcript": "transept.speech.transcript",
    "TranscriptionInfo": "transept.speech.transcript",
    "TranscriptionOptions": "transept.speech.options",
    "VadOptions": "transept.speech.vad.options",
    "Word": "transept.speech.segments",
    "stream_transcribe": "transept.speech.transcriber",
    "transcribe": "transept.speech.transcriber",
    "ImageText": "transept.vision.image_text",
    "VisionReader": "transept.vision.reader",
    "caption": "transept.vision.tasks",
    "read_text": "transept.vision.tasks",
}

__all__ = [
    "CapacityError",
    "CheckpointError",
    "CompletionOutput",
    "Engine",
    "EngineConfig",
    "ExplicitEncoderDecoderPrompt",
    "ForkedProcessError",
    "Gather",
    "GeneratedText",
    "ImageText",
    "Job",
    "Limits",
    "MediaError",
    "MultiModalPrompt",
    "Offload",
    "ParameterError",
    "PluginError",
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
    "VadOptions",
    "VisionReader",
    "Wait",
    "Word",
    "caption",
    "generate",
    "read_text",
    "stream_transcribe",
    "summarize",
    "transcribe",
    "translate",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("transept")
    if name not in _LAZY_IMPORTS:
        raise AttributeError(f"module 'transept' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY_IMPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
