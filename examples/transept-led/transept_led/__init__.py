"""LED (Beltagy et al. 2020): BART with an encoder for long documents, such as allenai/led-large-16384-arxiv."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING

from transept.authoring import (
    CheckpointView,
    ModelSpec,
    ParameterError,
    TextSpec,
    TextTask,
    UnsupportedTaskError,
    dec_prompt,
    hookimpl,
)

if TYPE_CHECKING:
    from torch import Tensor


def global_attention(positions: Sequence[int] | None, token_ids: Sequence[int], view: CheckpointView) -> Tensor:
    """Return the mask of tokens with global attention, to and from all tokens: int64 [tokens], 1 at these positions.

    positions: integers; None for no token, as in transformers. Raises ParameterError for a position outside the text,
    and for anything but a list of integers.
    """
    import torch

    mask = torch.zeros(len(token_ids), dtype=torch.int64)
    try:
        places = [operator.index(position) for position in (() if positions is None else positions)]
    except TypeError:
        message = f"global_attention is a list of positions, such as [0], not {positions!r}"
        raise ParameterError(message, param="encoder_inputs", value=positions) from None
    for position in places:
        if not 0 <= position < len(token_ids):
            message = f"global_attention has {position}; this text has tokens 0 to {len(token_ids) - 1}"
            raise ParameterError(message, param="encoder_inputs", value=positions)
        mask[position] = 1
    return mask


def summarize(view: CheckpointView) -> TextTask:
    """Summarize with global attention of the first token, ``<s>``, as in training (section 7 of the paper)."""
    return TextTask("summarization", encoder_inputs={"global_attention": [0]})


def translate(view: CheckpointView, source: str | None, target: str | None) -> TextTask:
    """Raise UnsupportedTaskError: the family has one language."""
    raise UnsupportedTaskError("LED models do not translate. Call summarize, or take an NLLB, mBART or T5 model")


@hookimpl
def register_models() -> list[ModelSpec]:
    """One family, read from Hugging Face checkpoints."""
    return [
        ModelSpec(
            name="led",
            architectures=("LEDForConditionalGeneration",),
            model_class="transept_led.model:LEDForConditionalGeneration",
            default_decoder_prompt=dec_prompt,
            encoder_inputs={"global_attention": global_attention},
            weight_maps={"huggingface": "transept_led.weights:HUGGINGFACE"},
            text=TextSpec(summarize, translate),
        )
    ]
