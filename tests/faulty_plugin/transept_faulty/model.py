"""Each class does one thing wrong."""

import dataclasses

import torch
from transformers import GenerationConfig

from transept.authoring import Attention
from transept.plugins.bart.model import BartForConditionalGeneration as Right
from transept.plugins.bart.weights import HUGGINGFACE

SETTINGS_LOST = dataclasses.replace(
    HUGGINGFACE, generation_config=lambda checkpoint, config: GenerationConfig(eos_token_id=config.eos_token_id)
)


def begins(positions):
    """Whether a request begins in a step."""
    return bool((positions == 0).any())


class LatePositions(Right):
    def decode(self, input_ids, positions, *others):
        return super().decode(input_ids, positions + 1, *others)


class SharpEncoder(Right):
    def __init__(self, config, context):
        super().__init__(config, context)
        for module in self.encoder.modules():
            if isinstance(module, Attention):
                module.scale = 1.0


class NoFinalBias(Right):
    def compute_logits(self, hidden):
        return super().compute_logits(hidden) - self.final_logits_bias


class HeadOfItsOwn(Right):
    def compute_logits(self, hidden):
        rows = torch.arange(self.config.vocab_size).flip(0)
        return hidden @ self.shared(rows).t() + self.final_logits_bias


class DoubledLogits(Right):
    def compute_logits(self, hidden):
        return 2 * super().compute_logits(hidden)


class StuckPositions(Right):
    """Counts the decoder's positions from the last prefill's."""

    def decode(self, input_ids, positions, kv_caches, attn_metadata):
        if not begins(positions):
            positions = positions - 1
        return super().decode(input_ids, positions, kv_caches, attn_metadata)


class ForgetsAfter128(Right):
    """Sees the first 128 tokens of a sequence only, as a faulty sum over pieces of keys would."""

    def decode(self, input_ids, positions, kv_caches, attn_metadata):
        if not begins(positions):
            attn_metadata.seq_lens = [min(length, 128) for length in attn_metadata.seq_lens]
        return super().decode(input_ids, positions, kv_caches, attn_metadata)


class MixedBatch(Right):
    """Takes a mean over the rows of a step for one over a vector."""

    def compute_logits(self, hidden):
        return super().compute_logits((hidden + hidden.mean(dim=0)) / 2)


class ShortPrefill(Right):
    """Has positions for 16 tokens of a decoder prompt."""

    def decode(self, input_ids, positions, *others):
        if begins(positions) and len(input_ids) > 20:
            positions = positions.clamp(max=15)
        return super().decode(input_ids, positions, *others)


class CoarseInHalf(Right):
    """Loses digits that the reference keeps in the same dtype."""

    def compute_logits(self, hidden):
        logits = super().compute_logits(hidden)
        return logits if logits.dtype == torch.float32 else 2 * (logits / 2).round()


class OverflowsInHalf(Right):
    """Sums up more than float16 holds."""

    def encode(self, *inputs, **features):
        hidden = super().encode(*inputs, **features)
        return hidden * 1e4 * 10 / 1e5 if hidden.dtype == torch.float16 else hidden
