"""Subject: the checkpoint under test, run by engines with enough or too little cache. Called by Parity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from transept.core.execution.in_process import InProcessExecutor
from transept.core.request.sampling_params import SamplingParams

if TYPE_CHECKING:
    from torch import Tensor

    from transept.core.engine import Engine
    from transept.core.outputs import RequestOutput
    from transept.core.request.prompts import ExplicitEncoderDecoderPrompt, SingletonPrompt

DRAFT_LENGTH = 4
ROOM = 1 << 28  # bytes of cache for all requests of a check, for models of up to some ten million parameters


@dataclass(frozen=True, eq=False)
class EncoderInput:
    """One input of the encoder, for both sides.

    prompt: for Transept. keywords: for the reference, batches of one.
    """

    prompt: SingletonPrompt
    keywords: dict[str, Any]


@dataclass(frozen=True)
class Request:
    """A prompt for each side, and how to decode after it.

    forced: the new tokens; empty if the logits choose them. draft: probable new tokens, see
        SamplingParams.draft_tokens.
    num_beams: 1: greedy by the logits alone, without the checkpoint's settings and without an end. No pair of tokens
        occurs twice, since random models would otherwise repeat one token, and ids would prove little. More: a beam
        search with the checkpoint's settings, which returns every hypothesis.
    """

    encoder: EncoderInput
    decoder_prompt: list[int]
    max_tokens: int
    num_beams: int = 1
    forced: tuple[int, ...] = ()
    draft: tuple[int, ...] = ()


@dataclass(frozen=True)
class Forced:
    """A logits processor that allows one token at each step."""

    token_ids: tuple[int, ...]

    def __call__(self, logits: Tensor, rows: Sequence[Any]) -> None:
        """logits: [rows, vocabulary], changed in place."""
        for row, sequence in zip(logits, rows, strict=True):
            token = self.token_ids[len(sequence.output_token_ids)]
            row.fill_(float("-inf"))
            row[token] = 0.0


@dataclass(frozen=True)
class Recording:
    """The model's results.

    logits: [rows, vocabulary] of every step. encoder_hidden: [encoder tokens, hidden] of every run of the encoder.
    """

    logits: list[Tensor]
    encoder_hidden: list[Tensor]


class Subject:
    """A checkpoint directory, on a device in a dtype. plugin: its name, if several run the checkpoint."""

    def __init__(self, directory: Path, device: str, plugin: str | None = None, dtype: str = "float32") -> None:
        self.dtype = dtype
        self.directory = directory
        self.device = device
        self.plugin = plugin

    @cached_property
    def engine(self) -> Engine:
        """The engine with enough cache, made on first use."""
        return self._engine(kv_cache_bytes=ROOM)

    def num_tokens(self, given: EncoderInput) -> int:
        """Return the number of encoder tokens of an input."""
        return self.engine.preprocess(given.prompt).encoder.num_tokens

    def run_recorded(self, request: Request) -> tuple[RequestOutput, Recording]:
        """Run one request alone. Returns its output and the model's results."""
        executor = self.engine.executor
        assert isinstance(executor, InProcessExecutor)
        with _recording(executor.worker.runner) as recording:
            (output,) = self.run([request])
        return output, recording

    def run(self, requests: Sequence[Request], join_every: int = 0) -> list[RequestOutput]:
        """Run all requests in one batch, which one joins every `join_every` steps."""
        outputs, _ = _run(self.engine, requests, join_every)
        return outputs

    def run_with_itself(self, requests: Sequence[Request], join_every: int) -> tuple[list[RequestOutput], float]:
        """Run all requests in one batch, with the model as its own draft model.

        Returns the outputs, and the share of draft tokens that were accepted.
        """
        engine = self._engine(kv_cache_bytes=ROOM, draft_model=str(self.directory))
        outputs, _ = _run(engine, requests, join_every)
        statistics = engine.core.statistics
        return outputs, statistics.num_accepted_tokens / max(1, statistics.num_draft_tokens)

    def run_preempted(self, requests: Sequence[Request], block_size: int, swap: bool) -> list[RequestOutput]:
        """Run all requests in one batch, with cache only for the largest one, or for two to begin.

        swap: True to swap preempted requests; else they are recomputed.
        Raises AssertionError if no request was preempted.
        """
        import torch

        from transept.core.execution.kv_cache import block_bytes

        # The two largest begin together, and together they outgrow the cache.
        order = sorted(range(len(requests)), key=lambda i: -self._num_blocks(requests[i], block_size))
        in_turn = [requests[i] for i in order]
        in_the_end = self._num_blocks(in_turn[0], block_size)
        first, second, *_ = (self._num_blocks(replace(each, max_tokens=1), block_size) for each in in_turn)
        to_begin = first + second + in_turn[0].num_beams  # the scheduler leaves running sequences a block each
        num_blocks = max(in_the_end, to_begin)
        num_bytes = num_blocks * block_bytes(self.engine.shape, block_size, torch.float32)
        engine = self._engine(block_size=block_size, kv_cache_bytes=num_bytes, swap_bytes=8 * num_bytes * swap)
        outputs, preempted = _run(engine, in_turn, join_every=0)
        if not preempted:
            raise AssertionError(
                f"nothing was preempted with {num_blocks} blocks of {block_size} slots, so the check proves nothing: "
                "give the model positions for more tokens (max_position_embeddings=200 or so)"
            )
        return [outputs[order.index(number)] for number in range(len(requests))]

    def _num_blocks(self, request: Request, block_size: int) -> int:
        """Return the number of cache blocks of this size that the request needs when it ends."""
        decoder = [len(request.decoder_prompt) + request.max_tokens] * request.num_beams
        return sum(-(-size // block_size) for size in (self.num_tokens(request.encoder), *decoder))

    def _engine(self, **options: Any) -> Engine:
        from transept.core.engine import Engine

        return Engine(self.directory, device=self.device, dtype=cast(Any, self.dtype), plugin=self.plugin, **options)


def _run(engine: Engine, requests: Sequence[Request], join_every: int) -> tuple[list[RequestOutput], bool]:
    """Return the outputs in order, and True if a running request was preempted.

    Raises AssertionError if block reference counts are wrong after a step, or blocks are not free at the end. Raises
    the error of a failed request.
    """
    engine.block_manager.reset()  # so that every encoder runs: drops cached cross tables of earlier runs
    waiting = list(enumerate(requests))
    finished: dict[str, RequestOutput] = {}
    preempted, step = False, 0
    while waiting or engine.has_unfinished_requests:
        while waiting and step >= waiting[0][0] * join_every:
            number, request = waiting.pop(0)
            _add(engine, str(number), request)
        finished |= {output.request_id: output for output in engine.step() if output.finished}
        engine.block_manager.check_integrity()
        preempted = preempted or any(group.seqs[0].output_token_ids for group in engine.scheduler.queue)
        step += 1
    manager = engine.block_manager
    held = manager.num_device_blocks - manager.num_free_device_blocks
    if held:
        raise AssertionError(f"{held} of {manager.num_device_blocks} cache blocks are held after the last request")
    outputs = [finished[str(number)] for number in range(len(requests))]
    for output in outputs:
        if output.error is not None:
            raise output.error  # its cause is the model's exception
    return outputs, preempted


def _add(engine: Engine, request_id: str, request: Request) -> None:
    from transformers import GenerationConfig

    prompt: ExplicitEncoderDecoderPrompt = {
        "encoder_prompt": request.encoder.prompt,
        "decoder_prompt": {"prompt_tokens": request.decoder_prompt},
    }
    if request.num_beams == 1:
        choice: Any = (
            {"logits_processors": (Forced(request.forced),)} if request.forced else {"no_repeat_ngram_size": 2}
        )
        if request.draft or engine.config.draft_model:
            choice |= {"draft_tokens": request.draft or None, "draft_length": DRAFT_LENGTH}
        greedy = SamplingParams(temperature=0.0, max_tokens=request.max_tokens, ignore_eos=True, **choice)
        engine.add_request(request_id, prompt, greedy, generation_config=GenerationConfig())
        return
    beams = request.num_beams
    params = SamplingParams(num_beams=beams, num_return_sequences=beams, max_tokens=request.max_tokens)
    engine.add_request(request_id, prompt, params)


@contextmanager
def _recording(runner: Any) -> Iterator[Recording]:
    """Record the results of a runner model's encode and compute_logits, without replaying CUDA graphs."""
    model = runner.model
    encode, compute_logits = model.encode, model.compute_logits
    recording = Recording([], [])

    def recording_encode(*arguments: Any, **features: Any) -> Tensor:
        hidden: Tensor = encode(*arguments, **features)
        recording.encoder_hidden.append(hidden.cpu().clone())
        return hidden

    def recording_logits(hidden: Tensor) -> Tensor:
        logits: Tensor = compute_logits(hidden)
        recording.logits.append(logits.cpu().clone())  # the sampler writes into them
        return logits

    model.encode, model.compute_logits = recording_encode, recording_logits
    try:
        with runner.launching():
            yield recording
    finally:
        del model.encode, model.compute_logits  # the class's methods remain
