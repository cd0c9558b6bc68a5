"""A small BART with random weights, whose hypotheses end at different lengths."""

from typing import Any

import torch
from transformers import BartConfig, BartForConditionalGeneration

END = 2


def small_bart(seed: int, layers: int, heads: int, end_bias: float, **settings: Any) -> BartForConditionalGeneration:
    """settings: of BartConfig. end_bias: added to the logit of the end-of-sequence token."""
    torch.manual_seed(seed)
    inner = 2 * settings["d_model"]
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (("layers", layers), ("attention_heads", heads), ("ffn_dim", inner))
    }
    model = BartForConditionalGeneration(BartConfig(**sides, **settings)).eval()
    model.final_logits_bias[0, END] = end_bias
    return model
