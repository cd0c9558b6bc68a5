"""Transept: an engine for encoder/decoder transformers.

Every public name is loaded on first use (PEP 562), so `import transept` imports neither torch nor transformers.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transept.core.engine import Engine
    from transept.core.outputs import CompletionOutput, RequestOutput
    from transept.core.prompts import ExplicitEncoderDecoderPrompt, TextPrompt, TokensPrompt
    from transept.core.sampling_params import SamplingParams
    from transept.errors import TranseptError
    from transept.speech.transcriber import Transcriber, transcribe
    from transept.speech.transcript import Transcript

_HOMES = {
    "Engine": "transept.core.engine",
    "SamplingParams": "transept.core.sampling_params",
    "CompletionOutput": "transept.core.outputs",
    "RequestOutput": "transept.core.outputs",
    "ExplicitEncoderDecoderPrompt": "transept.core.prompts",
    "TextPrompt": "transept.core.prompts",
    "TokensPrompt": "transept.core.prompts",
    "TranseptError": "transept.errors",
    "Transcriber": "transept.speech.transcriber",
    "Transcript": "transept.speech.transcript",
    "transcribe": "transept.speech.transcriber",
}

__all__ = [
    "CompletionOutput",
    "Engine",
    "ExplicitEncoderDecoderPrompt",
    "RequestOutput",
    "SamplingParams",
    "TextPrompt",
    "TokensPrompt",
    "Transcriber",
    "Transcript",
    "TranseptError",
    "transcribe",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'transept' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
