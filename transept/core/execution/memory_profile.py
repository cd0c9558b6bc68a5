"""Measure a GPU's memory for the cache, by running the largest possible step and recording it as CUDA graphs.

Called by `transept.core.execution.worker` if kv_cache_bytes is not given.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from transept.core.config import SchedulerConfig
from transept.core.execution import decode_graphs, encoder_graphs
from transept.core.execution.decode_graphs import num_rows_recorded, power_of_two
from transept.core.execution.decoder_runner import most_rows
from transept.core.execution.encoder_graphs import MOST_INPUTS, MOST_TEXT_TOKENS
from transept.core.execution.model_runner import ModelRunner
from transept.core.model_shape import ModelShape
from transept.core.request.inputs import EncoderInputs
from transept.core.request.sampling_params import SamplingParams
from transept.core.scheduling.step import Encode, SequenceData, SequenceGroupMetadata, StepInput
from transept.errors import CapacityError

OF_A_STEP = ("max_num_seqs", "max_encoder_tokens", "max_decoder_tokens")  # options that bound a step
UNBOUNDED_SOURCE = 1024  # tokens of an input or of an output, assumed if the model sets no bound


def cache_bytes(runner: ModelRunner, step: StepInput, utilization: float) -> int:
    """Return the bytes for the cache: `utilization` times the GPU's memory, minus everything else in it.

    Subtracted are other programs, weights, activations, and CUDA graphs if the runner records steps. Afterwards the
    runner records no more.
    runner: on a GPU, with a cache of one block. step: see `largest_step`.
    Raises CapacityError if the step does not fit, or leaves no memory for the cache.
    """
    device = runner.device
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    try:
        with runner.launching():
            runner.compute(step).collect()
    except torch.cuda.OutOfMemoryError as error:
        raise CapacityError(
            f"a step of {_described(step)} does not fit into the GPU's memory. Lower {{max_num_seqs}}, "
            f"{{max_encoder_tokens}} or {{max_decoder_tokens}} ({str(error).partition(chr(10))[0]})",
            others=OF_A_STEP,
        ) from None
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_allocated(device)
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    others = total - free - torch.cuda.memory_reserved(device)
    recorded = graph_bytes(runner, step)
    left = int(total * utilization) - others - peak - recorded
    if left <= 0:
        raise CapacityError(
            f"nothing is left for the cache: of the GPU's {_gib(total)} a share of {utilization} may be used, other "
            f"programs hold {_gib(others)}, and a step of {_described(step)} takes {_gib(peak)} with the weights, "
            f"CUDA graphs {_gib(recorded)} ({{enforce_eager}} does without). Raise {{gpu_memory_utilization}}, or "
            "lower {max_num_seqs}, {max_encoder_tokens} or {max_decoder_tokens}",
            others=("enforce_eager", "gpu_memory_utilization", *OF_A_STEP),
        )
    return left


@torch.inference_mode()
def graph_bytes(runner: ModelRunner, step: StepInput) -> int:
    """Return the bytes of the maximum number of CUDA graphs. Afterwards the runner records no more.

    Records the largest graph of each kind, and a smaller one. All other graphs are assumed to cost as much as the
    smaller one: they share the largest graph's memory pool, and add only static tensors and the driver's graph nodes.
    """
    gc.collect()  # memory that is freed during a recording would be subtracted from its size
    encoder, decoder = runner.encoder.graphs, runner.decoder.graphs
    kept: list[object] = []
    total = 0
    if encoder is not None:
        inputs, half = _recorded_inputs([each.inputs for each in step.encodes])
        first = _growth(runner, lambda: kept.append(encoder.record(inputs)))
        another = _growth(runner, lambda: kept.append(encoder.record(half)))
        total += first + (encoder_graphs.most_passes(inputs[0]) - 1) * another
    if decoder is not None:
        num_rows = num_rows_recorded(most_rows(len(step.decodes)))
        longest = (runner.decoder.shape.max_target_positions or UNBOUNDED_SOURCE, step.decodes[0].num_encoder_tokens)
        blocks, cross_blocks = (power_of_two(-(-tokens // runner.block_size)) for tokens in longest)
        first = _growth(runner, lambda: decoder.record((num_rows, blocks, cross_blocks)))
        another = _growth(runner, lambda: decoder.record((num_rows // 2, blocks, cross_blocks)))
        total += first + (decode_graphs.most_recordings((num_rows, blocks, cross_blocks)) - 1) * another
    runner.encoder.graphs = runner.decoder.graphs = None
    return total


def _growth(runner: ModelRunner, record: Callable[[], object]) -> int:
    """Return the bytes of GPU memory that a recording takes."""
    torch.cuda.synchronize(runner.device)
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info(runner.device)
    record()
    torch.cuda.synchronize(runner.device)
    torch.cuda.empty_cache()
    return max(0, free - torch.cuda.mem_get_info(runner.device)[0])


def _recorded_inputs(inputs: list[EncoderInputs]) -> tuple[list[EncoderInputs], list[EncoderInputs]]:
    """Return the largest inputs that one graph encodes, and half of these inputs, or of their tokens, rounded up."""
    if inputs[0].features:
        return inputs[:MOST_INPUTS], inputs[: -(-min(len(inputs), MOST_INPUTS) // 2)]
    num_tokens = min(MOST_TEXT_TOKENS, sum(each.num_tokens for each in inputs))
    whole, half = (EncoderInputs(None, [0] * count, count) for count in (num_tokens, -(-num_tokens // 2)))
    return [whole], [half]


def largest_step(
    shape: ModelShape,
    limits: SchedulerConfig,
    block_size: int,
    features: Mapping[str, Tensor],
    beside_text: Callable[[list[int]], Mapping[str, Tensor]] = lambda token_ids: {},
) -> StepInput:
    """Return a step that uses up its budgets. All requests share one cache block, so its results are meaningless.

    features: of the longest input, for an encoder that does not read text alone; with ``encoder_input_ids`` if it reads
        text with them. beside_text: token ids -> further inputs of an encoder of text.
    """
    ids = features.get("encoder_input_ids")
    features = {name: value for name, value in features.items() if name != "encoder_input_ids"}
    source = min(shape.max_source_positions or UNBOUNDED_SOURCE, limits.max_encoder_tokens)
    target = limits.max_decoder_tokens // limits.max_num_seqs
    if shape.max_target_positions is not None:
        target = min(target, shape.max_target_positions)
    token_ids = [0] * source if not features else [] if ids is None else ids.tolist()
    inputs = EncoderInputs(None, token_ids, source, features or beside_text(token_ids))
    cross_table = [0] * -(-source // block_size)
    num_encodes = min(limits.max_num_seqs, limits.max_encoder_tokens // source)
    decodes = [
        SequenceGroupMetadata(
            request_id=str(index),
            is_prefill=True,
            encode_id=None,
            num_encoder_tokens=source,
            seq_data={index: SequenceData([0] * target, [], 0)},
            sampling_params=SamplingParams(temperature=1.0, seed=0),
            num_samples=1,
            block_tables={index: [0] * -(-target // block_size)},
            cross_block_table=cross_table,
        )
        for index in range(limits.max_num_seqs)
    ]
    return StepInput([Encode(index, inputs, cross_table) for index in range(num_encodes)], decodes)


def _described(step: StepInput) -> str:
    encoder = sum(each.inputs.num_tokens for each in step.encodes)
    decoder = sum(data.num_tokens for group in step.decodes for data in group.seq_data.values())
    return f"{len(step.decodes)} sequences, {encoder} encoder tokens and {decoder} decoder tokens"


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.1f} GiB"
