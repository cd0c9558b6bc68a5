"""Calls with ``**options`` show them one by one, and every one that is shown is taken."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import transept
from transept import (
    Engine,
    EngineConfig,
    SamplingParams,
    TextGenerator,
    Transcriber,
    TranscriptionOptions,
    VisionReader,
)
from transept.errors import ParameterError

TASK = {"truncate", "chunk", "max_source_tokens", "decoder_prompt", "lora"}


def names_of(options: type) -> set[str]:
    return {each.name for each in dataclasses.fields(options)} - {"model"}


ENGINE, SPEECH = names_of(EngineConfig), names_of(TranscriptionOptions)
SAMPLING = names_of(SamplingParams) - {"logprobs", "prompt_probe"}  # whose results a text has no place for


@pytest.mark.parametrize(
    ("call", "options"),
    [
        (Engine, ENGINE),
        (Transcriber, ENGINE),
        (TextGenerator, ENGINE),
        (Transcriber.transcribe, SPEECH),
        (Transcriber.transcribe_many, SPEECH),
        (Transcriber.stream, SPEECH),
        (transept.transcribe, SPEECH | ENGINE),
        (transept.stream_transcribe, SPEECH | ENGINE),
        (TextGenerator.summarize, TASK | SAMPLING),
        (TextGenerator.generate, TASK | SAMPLING),
        (TextGenerator.translate, TASK | SAMPLING | {"source", "target"}),
        (TextGenerator.stream, TASK | SAMPLING | {"source", "target"}),
        (VisionReader.read, SAMPLING | {"task", "lora"}),
        (VisionReader.stream, SAMPLING | {"task", "lora"}),
        (transept.summarize, TASK | SAMPLING | ENGINE),
        (transept.generate, TASK | SAMPLING | ENGINE),
        (transept.translate, TASK | SAMPLING | ENGINE | {"source", "target"}),
    ],
    ids=lambda each: getattr(each, "__qualname__", ""),
)
def test_a_call_shows_its_options(call: Callable[..., Any], options: set[str]) -> None:
    own = {"self", "model", "audio", "audios", "documents", "images", "task", "progress", "on_info", "on_segment"}
    parameters = inspect.signature(call).parameters
    assert {*parameters} - (own - options) == options
    assert {parameters[name].kind for name in options} == {inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize(
    "call", [transept.transcribe, transept.summarize, transept.translate], ids=lambda f: f.__name__
)
def test_what_is_shown_is_known_and_what_is_not_is_refused(call: Callable[..., Any], tmp_path: Path) -> None:
    """Known options get as far as the checkpoint, which is not there."""
    shown = inspect.signature(call).parameters.values()
    defaults = {each.name: each.default for each in shown if each.default is not inspect.Parameter.empty}
    with pytest.raises(transept.CheckpointError):
        call("x", **{**defaults, "model": tmp_path})
    with pytest.raises(ParameterError, match=r"no option 'thread'\. Did you mean 'threads'"):
        call("x", model=tmp_path, thread=1)
    with pytest.raises(ParameterError, match=r"no option 'quantize'\. Here that is 'quantization'"):
        call("x", model=tmp_path, quantize="int8")
    with pytest.raises(ParameterError, match=r"has no argument 'modle'\. Did you mean 'model'\?"):
        call("x", modle=tmp_path)
    with pytest.raises(ParameterError, match=r"^model and model_size_or_path are the same option"):
        call("x", tmp_path, model_size_or_path=tmp_path)


def test_an_argument_of_the_call_itself_is_suggested() -> None:
    with pytest.raises(ParameterError, match=r"^transcribe has no argument 'progres'\. Did you mean 'progress'\?$"):
        transept.transcribe("x", progres=True)
    with pytest.raises(ParameterError, match=r"^model and model_size_or_path are the same option"):
        EngineConfig("x", model_size_or_path="x")


def test_a_signature_shows_types_and_no_help() -> None:
    shown = str(inspect.signature(transept.transcribe))
    assert "beam_size: int | None = None" in shown
    assert "Annotated" not in shown
    assert len(shown) < 4000
