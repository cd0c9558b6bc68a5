"""Jobs of one prompt, for `transept.serving.async_engine`."""

from __future__ import annotations

from functools import partial

from transept.core.engine import Engine
from transept.core.jobs.job import Job, Offload, Submit, Wait
from transept.core.request.input_processor import InputProcessor
from transept.core.request.prompts import ExplicitEncoderDecoderPrompt, Request
from transept.core.request.sampling_params import SamplingParams


def generation(inputs: InputProcessor, request: Request, stream: bool) -> Job:
    """A job for one prompt, preprocessed in another thread. stream: yield unfinished RequestOutputs as events."""
    prepared = yield Offload(partial(inputs, request))
    (output,) = yield Submit([prepared], stream)
    while output is None or not output.finished:
        if output is not None:
            yield output
        (output,) = yield Wait()
    return output


def one_token(engine: Engine) -> Job:
    """A job that generates one token; it does nothing if the encoder takes no text."""
    if not engine.shape.encoder_takes_text:
        return None
    prompt: ExplicitEncoderDecoderPrompt = {"encoder_prompt": {"prompt_tokens": [0]}, "decoder_prompt": None}
    (output,) = yield Submit([Request(prompt, SamplingParams(temperature=0.0, max_tokens=1))])
    return output
