"""Refuse requests that could never run. The scheduler calls it before it queues a request."""

from __future__ import annotations

from transept.core.config import SchedulerConfig
from transept.core.scheduling.block_manager import BlockSpaceManager
from transept.core.scheduling.sequence_group import SequenceGroup
from transept.errors import CapacityError
from transept.options import refusal


def refuse_oversized(group: SequenceGroup, config: SchedulerConfig, manager: BlockSpaceManager) -> None:
    """Raise CapacityError unless the group could be recomputed alone at its full length.

    Recomputation just before the end needs the most: every sample has separate blocks for all its tokens, and all are
    computed in one step. A request that passes this check always makes progress, even if it is preempted.
    """
    params = group.sampling_params
    if params.max_tokens is None:
        raise refusal(params, "the request has no {max_tokens}; complete its SamplingParams first")
    params.check_width(config.max_num_seqs)
    samples, width = group.max_num_seqs, "num_beams" if params.beam_search else "n"
    prompt_tokens = max(len(seq.prompt_token_ids) for seq in group.seqs)
    length = prompt_tokens + params.max_tokens
    encoder_tokens = group.encoder_seq.num_tokens
    cross_blocks, self_blocks = manager.num_blocks_for(group.num_cross_tokens), samples * manager.num_blocks_for(length)
    num_blocks = cross_blocks + self_blocks
    decoder_side = f"{samples} sequence(s) of {prompt_tokens} prompt + {params.max_tokens} new tokens"
    if encoder_tokens > config.max_encoder_tokens:
        blamed: str | None = None
        problem = f"has {encoder_tokens} encoder tokens, but {{max_encoder_tokens}} is {config.max_encoder_tokens}"
        remedy = f"Shorten the encoder prompt, or raise {{max_encoder_tokens}} to {encoder_tokens}."
    elif samples * length > config.max_decoder_tokens:
        blamed = "max_tokens"
        problem = (
            f"may need {samples * length} decoder tokens in one step ({decoder_side}, if it is recomputed), "
            f"but {{max_decoder_tokens}} is {config.max_decoder_tokens}"
        )
        remedy = f"Lower {{max_tokens}} or {{{width}}}, or raise {{max_decoder_tokens}} to {samples * length}."
    elif num_blocks > manager.num_device_blocks:
        blamed = "max_tokens"
        problem = (
            f"may need {num_blocks} cache blocks of {manager.block_size} tokens ({cross_blocks} for "
            f"{encoder_tokens} encoder tokens, {self_blocks} for {decoder_side}), "
            f"but the cache has {manager.num_device_blocks}"
        )
        factor = f"{num_blocks / manager.num_device_blocks:.2f} times" if manager.num_device_blocks else "above 0"
        remedy = (
            f"Lower {{max_tokens}} or {{{width}}}, shorten the prompts, or raise {{kv_cache_bytes}} ({factor} as much)."
        )
    else:
        return
    budgets = ("max_encoder_tokens", "max_decoder_tokens", "kv_cache_bytes", "max_tokens", width)
    raise CapacityError(f"the request {problem}. {remedy}", param=blamed, others=budgets)
