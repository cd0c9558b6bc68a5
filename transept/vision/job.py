"""ReadingJob: a task with its settings of the user, the family and the checkpoint; and the job of an image."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from transept.core.engine import Engine
from transept.core.jobs.job import Offload, Submit
from transept.core.outputs import RequestOutput
from transept.core.request.input_processor import InputProcessor
from transept.core.request.inputs import PreparedRequest
from transept.core.request.prompts import Prompt, Request
from transept.core.request.sampling_params import SamplingParams
from transept.core.request.single_text import REFUSED_FOR_ONE, params_of_single_text
from transept.errors import ParameterError, PluginError, suggest
from transept.options import split_options
from transept.registry.plugin_calls import call_declared
from transept.registry.spec import VisionSpec, VisionTask
from transept.vision.image_text import ImageText
from transept.vision.options import ReadingOptions


@dataclass(frozen=True)
class ReadingJob:
    """How every image of one call is read.

    inputs: the engine's input processor. modality: key of the image in prompts. encoder_prompt: text beside the image.
    decoder_prompt: token ids; None: the family's default. generation_config: defaults of sampling_params; None: the
    checkpoint's. lora: name of an adapter; None: no adapter.
    """

    inputs: InputProcessor
    modality: str
    encoder_prompt: str | None
    decoder_prompt: list[int] | None
    sampling_params: SamplingParams
    generation_config: Any | None
    lora: str | None = None


def make_job(engine: Engine, options: Mapping[str, Any]) -> ReadingJob:
    """Make a job for this engine, whose family has a VisionSpec. options: of ReadingOptions and SamplingParams.

    Raises ParameterError for an unknown task or option, or for options that contradict each other.
    """
    spec = engine.spec.vision
    assert spec is not None  # checked by VisionReader
    own, sampling = split_options(
        "read has no option", options, ReadingOptions, SamplingParams, without=REFUSED_FOR_ONE
    )
    given = ReadingOptions(**own)
    task, lora = given.task, given.lora
    params = params_of_single_text("an image", sampling)
    known = tasks(engine, spec)
    name = next(iter(known)) if task is None else task
    if name not in known:
        message = f"there is no {{task}} {{task!}} with this model.{suggest(name, known)}"
        raise ParameterError(message, param="task", value=task)
    chosen = known[name]
    decoder_prompt = None if chosen.decoder_prompt is None else list(chosen.decoder_prompt)
    source = f'the settings of "{engine.spec.name}" models for {name!r}'
    generation_config = engine.inputs.for_task(params, chosen.settings, decoder_prompt, source)
    return ReadingJob(
        inputs=engine.inputs,
        modality=spec.modality,
        encoder_prompt=chosen.encoder_prompt,
        decoder_prompt=decoder_prompt,
        sampling_params=params,
        generation_config=generation_config,
        lora=None if lora is None else engine.adapters.lasting(lora),
    )


def tasks(engine: Engine, spec: VisionSpec) -> Mapping[str, VisionTask]:
    """Return the family's tasks by name. Raises PluginError if the plugin returns anything else."""
    known: Any = call_declared(engine.spec, "vision.tasks", engine.view)
    if not (isinstance(known, Mapping) and known and all(isinstance(each, VisionTask) for each in known.values())):
        where = f"the VisionSpec of {engine.spec.known_as}"
        raise PluginError(f"{where} must name tasks, a dict of VisionTasks with at least one, not {known!r}")
    return known


def read_image(image: Any, job: ReadingJob) -> Generator[Any, Any, ImageText]:
    """A job that reads one image. The image is decoded and prepared in another thread."""
    outputs: list[RequestOutput] = yield Submit([(yield Offload(partial(prepare, image, job)))])
    return ImageText.of(outputs[0].outputs[0])


def prepare(image: Any, job: ReadingJob) -> PreparedRequest:
    """Make the request for an image. Raises MediaError for an invalid image, CheckpointError for invalid settings."""
    encoder_prompt: Any = {"multi_modal_data": {job.modality: image}}
    if job.encoder_prompt is not None:
        encoder_prompt["prompt"] = job.encoder_prompt
    prompt: Prompt = {
        "encoder_prompt": encoder_prompt,
        "decoder_prompt": None if job.decoder_prompt is None else {"prompt_tokens": job.decoder_prompt},
    }
    return job.inputs(Request(prompt, job.sampling_params, job.generation_config, lora=job.lora))
