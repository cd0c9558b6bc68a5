"""TextJob: a task with its settings of the user, the model's family and the checkpoint."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from transept.core.engine import Engine
from transept.core.request.generation_settings import check_generation_settings
from transept.core.request.sampling_params import SamplingParams
from transept.core.request.single_text import REFUSED, params_of_text
from transept.errors import (
    CheckpointError,
    ParameterError,
    PluginError,
    PromptError,
    TranseptError,
    UnsupportedTaskError,
    suggest,
)
from transept.options import split_options
from transept.registry.plugin_calls import call_declared
from transept.registry.spec import TextSpec, TextTask
from transept.text.encoding import DocumentEncoder, own_special_tokens
from transept.text.options import TranslationOptions

Task = Literal["summarize", "translate", "generate"]
TASKS = ("summarize", "translate", "generate")
CONFIG_NAMES = {"summarize": "summarization", "translate": "translation"}  # task -> its name in task_specific_params


@dataclass(frozen=True)
class TextJob:
    """How every document of one call is encoded and decoded.

    encoder_inputs: further inputs in every document's prompt.
    decoder_prompt: token ids; None: the family's default. generation_config: a transformers GenerationConfig with this
    task's defaults of sampling_params; None: the checkpoint's. lora: name of an adapter; None: no adapter.
    """

    encoder: DocumentEncoder
    encoder_inputs: Mapping[str, Any]
    decoder_prompt: list[int] | None
    sampling_params: SamplingParams
    generation_config: Any | None
    lora: str | None = None


def make_job(engine: Engine, task: Task, options: Mapping[str, Any], *, can_chunk: bool = True) -> TextJob:
    """Make a job for this engine. options: of TranslationOptions and SamplingParams. can_chunk: see DocumentEncoder.

    Raises ParameterError for an unknown task, language or option, or options that contradict each other.
    """
    own, sampling = split_options(f"{task} has no option", options, TranslationOptions, SamplingParams, without=REFUSED)
    given = TranslationOptions(**own)
    params = params_of_text("a document", sampling)
    text_task = _text_task(engine, task, given.source, given.target)
    settings = _task_settings(engine, text_task)
    text_task = dataclasses.replace(text_task, prefix=settings.pop("prefix", text_task.prefix))
    limit = _source_limit(engine, given.max_source_tokens)
    decoder_prompt = None if text_task.decoder_prompt is None else list(text_task.decoder_prompt)
    if given.decoder_prompt is not None:
        decoder_prompt = _continued(engine, decoder_prompt, given.decoder_prompt)
    source = f'task_specific_params["{text_task.name}"] in config.json'
    generation_config = engine.inputs.for_task(params, settings, decoder_prompt, source)
    return TextJob(
        encoder=DocumentEncoder(
            engine.source_tokenizer,
            text_task,
            limit,
            truncate=given.truncate,
            chunk=given.chunk,
            can_chunk=can_chunk,
            limits=engine.config.limits,
        ),
        encoder_inputs=text_task.encoder_inputs,
        decoder_prompt=decoder_prompt,
        sampling_params=params,
        generation_config=generation_config,
        lora=None if given.lora is None else engine.adapters.lasting(given.lora),
    )


def _continued(engine: Engine, decoder_prompt: list[int] | None, given: str | Sequence[int]) -> list[int]:
    """Return the task's decoder prompt, continued with a text or with token ids. Raises ParameterError for bad ones."""
    start = engine.preprocess.decoder_inputs(decoder_prompt).token_ids
    try:
        if not isinstance(given, str):
            return engine.preprocess.decoder_inputs([*start, *given]).token_ids
        engine.config.limits.check_text(given, "the text")
    except PromptError as error:
        raise ParameterError(f"{{decoder_prompt}}: {error}", param="decoder_prompt", value=given) from None
    before, _ = own_special_tokens(engine.tokenizer)
    content = engine.tokenizer(given, add_special_tokens=False, verbose=False).input_ids
    return [*start, *(before if len(start) == 1 else ()), *content]


def _text_task(engine: Engine, task: Task, source: str | None, target: str | None) -> TextTask:
    """Return the task as the model's family declares it."""
    spec = engine.spec.text or TextSpec()
    if task not in TASKS:
        message = f"there is no {{task}} {{task!}}.{suggest(str(task), TASKS)}"
        raise ParameterError(message, param="task", value=task)
    if task == "translate" and spec.translate is not None:
        return _asked(engine, task, source, target)
    if source is not None or target is not None:
        raise ParameterError(
            f'{task} with a "{engine.spec.name}" model takes no {{source}} and no {{target}}: it reads '
            "documents unchanged. Leave them out",
            param="target" if source is None else "source",
            others=("source", "target"),
        )
    if task == "summarize" and spec.summarize is not None:
        return _asked(engine, task)
    return TextTask(CONFIG_NAMES.get(task))


def offered_tasks(engine: Engine) -> list[Task]:
    """Return the tasks that this checkpoint can do, according to its family and config; "generate" is always one.

    A task that the family leaves undefined passes documents unchanged. It is listed if config.json names it.
    """
    return [task for task in get_args(Task) if _is_offered(engine, task)]


def _is_offered(engine: Engine, task: Task) -> bool:
    if task == "generate":
        return True
    if getattr(engine.spec.text, task, None) is None:
        named = getattr(engine.model_config, "task_specific_params", None) or ()
        return any(str(name).partition("_")[0] == CONFIG_NAMES[task] for name in named)
    try:
        make_job(engine, task, {})
    except UnsupportedTaskError:
        return False
    except TranseptError:  # for example because languages are missing
        return True
    return True


def _asked(engine: Engine, task: Task, *languages: str | None) -> TextTask:
    """Ask the plugin for its TextTask. Raises PluginError if it returns anything else or raises."""
    text_task = call_declared(engine.spec, f"text.{task}", engine.view, *languages)
    if not isinstance(text_task, TextTask):
        where = f"the TextSpec of {engine.spec.known_as}"
        raise PluginError(f"{where} answers {task} with a {type(text_task).__name__}; it must return a TextTask")
    return text_task


def _task_settings(engine: Engine, task: TextTask) -> dict[str, Any]:
    """Return the task's settings in config.json, including its prefix, overridden by the family's.

    Raises CheckpointError for settings that no request could use.
    """
    named = getattr(engine.model_config, "task_specific_params", None) or {}
    of_task = (named.get(task.name) or {}) if isinstance(named, Mapping) else named
    file = Path(engine.config.model) / "config.json"
    if not isinstance(of_task, Mapping) or not isinstance(of_task.get("prefix", ""), str):
        raise CheckpointError(
            f'"{file}": task_specific_params must be {{task: settings}} with a string as prefix, if any, not {named!r}'
        )
    check_generation_settings(of_task, file)
    return {**of_task, **task.settings}


def _source_limit(engine: Engine, max_source_tokens: int | None) -> int:
    """Return the longest document in encoder tokens, by the model's positions and the budget of a step."""
    budget = engine.scheduler.config.max_encoder_tokens
    bound = min(budget, engine.shape.max_source_positions or budget)
    if max_source_tokens is None:
        return bound
    if max_source_tokens > bound:
        raise ParameterError(
            f"{{max_source_tokens}} must be from 1 to {bound} with this model, not {max_source_tokens}",
            param="max_source_tokens",
            value=max_source_tokens,
        )
    return max_source_tokens
