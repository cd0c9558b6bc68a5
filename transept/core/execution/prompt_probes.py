"""PromptProbes: answers the prompt probes of a step's prefills.

The decoder runner makes it before it calls the model, and reads the answers afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from transept.core.attention.capture import CaptureRequest, CrossAttentionCapture
from transept.core.attention.metadata import AttentionMetadata, slots_of
from transept.core.kernels.transfer import Download, upload
from transept.core.parallel.group import ParallelGroup
from transept.core.parallel.pipeline_stage import PipelineStage
from transept.core.request.prompt_probe import ProbeResult, PromptProbe
from transept.core.scheduling.step import SequenceGroupMetadata

POSITIONS_AT_ONCE = 64  # bounds the memory of a long prompt's logits


class PromptProbes:
    """The probes of one step. Attention layers capture the requested weights through ``metadata.capture``."""

    def __init__(
        self,
        step: Sequence[SequenceGroupMetadata],
        metadata: AttentionMetadata,
        kv_caches: list[Tensor],
        ranks: ParallelGroup,
        stage: PipelineStage,
    ) -> None:
        self._ranks, self._stage = ranks, stage
        self.probes: dict[str, tuple[PromptProbe, int]] = {}  # request id -> probe, first row of the first sequence
        requests: dict[str, CaptureRequest] = {}
        next_row = 0
        for group in step:
            first, next_row = next_row, next_row + group.num_rows
            probe = group.sampling_params.prompt_probe
            if probe is None or not group.is_prefill:
                continue
            self.probes[group.request_id] = probe, first
            if probe.cross_attention_heads:
                length = len(next(iter(group.seq_data.values())).prompt_token_ids)
                slots = slots_of(group.cross_block_table, group.num_encoder_tokens, metadata.block_size)
                requests[group.request_id] = CaptureRequest(
                    slice(first, first + length), upload(slots, kv_caches[0].device), probe.cross_attention_heads
                )
        if requests:
            layer_of = {kv_cache.data_ptr(): layer for layer, kv_cache in enumerate(kv_caches)}
            metadata.capture = CrossAttentionCapture(layer_of, requests, ranks.rank)
        self.capture = metadata.capture
        self._download: Download | None = None

    def read(self, hidden: Tensor, compute_logits: Callable[[Tensor], Tensor]) -> None:
        """Ask the device for the answers. hidden: the decoder's output, [num_tokens, hidden]."""
        parts: list[Tensor] = []  # each probe's log probabilities and its weights, as requested
        for request_id, (probe, first) in self.probes.items():
            if probe.logprobs:
                found = []
                for pairs in upload(probe.logprobs, hidden.device).split(POSITIONS_AT_ONCE):
                    logits = _within_limit(compute_logits(hidden[first + pairs[:, 0]]), probe).float()
                    found.append(logits.log_softmax(dim=-1).gather(1, pairs[:, 1:]))
                parts.append(torch.cat(found))
            if probe.cross_attention_heads:
                parts.append(self._weights(request_id, hidden))
        self._download = Download(parts)

    def send(self, hidden: Tensor) -> None:
        """Send the captured weights of this and earlier stages to the next stage. hidden: as for `read`."""
        for request_id, (probe, _) in self.probes.items():
            if probe.cross_attention_heads:
                self._weights(request_id, hidden)

    def _weights(self, request_id: str, hidden: Tensor) -> Tensor:
        """Return the weights of a probe's heads, float32 [heads, queries, encoder tokens], summed over ranks.

        Each rank adds zeros for heads that it does not have.
        """
        assert self.capture is not None
        captured, request = self.capture.weights.get(request_id, {}), self.capture.requests[request_id]
        num_queries, num_keys = request.rows.stop - request.rows.start, len(request.slots)
        weights = hidden.new_zeros(len(request.heads), num_queries, num_keys, dtype=torch.float32)
        for index, pair in enumerate(request.heads):
            if (self._ranks.size == 1 and self._stage.count == 1) or pair in captured:  # else another rank has it
                weights[index] = captured[pair]
        return self._stage.add_up(self._ranks.all_reduce(weights))

    def collect(self) -> dict[str, ProbeResult]:
        """Wait for the answers. Returns them by request id."""
        answers = iter([] if self._download is None else self._download.collect())
        return {
            request_id: ProbeResult(
                logprobs=tuple(next(answers).flatten().tolist()) if probe.logprobs else (),
                cross_attention=next(answers).numpy() if probe.cross_attention_heads else None,
            )
            for request_id, (probe, _) in self.probes.items()
        }


def _within_limit(logits: Tensor, probe: PromptProbe) -> Tensor:
    """Return the logits with tokens outside the probe's vocabulary removed or -inf. logits: [rows, vocabulary]."""
    if not probe.beyond_limit:
        return logits[:, : probe.vocab_limit]
    beyond = upload(probe.beyond_limit, logits.device)
    within = torch.full_like(logits, float("-inf"))
    within[:, : probe.vocab_limit] = logits[:, : probe.vocab_limit]
    within[:, beyond] = logits[:, beyond]
    return within
