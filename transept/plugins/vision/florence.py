"""Florence-2 (Xiao et al. 2023): BART reads an image's vectors from DaViT, and a question after them."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from transept.authoring import (
    AttentionMetadata,
    CheckpointView,
    ForConditionalGeneration,
    LayerContext,
    MediaError,
    ModelShape,
    PromptError,
    VocabParallelEmbedding,
    VocabParallelHead,
    transformers_encoder,
)
from transept.multimodal import EncoderPrompt, MappedInput
from transept.multimodal.image import load_image
from transept.multimodal.image_processing import pixel_values
from transept.multimodal.image_settings import read_image_settings
from transept.plugins.bart.model import POSITION_OFFSET, BartDecoder, BartEmbedding, BartEncoder
from transept.plugins.vision.florence_tasks import question


def grid_side(vision: Any, side: int) -> int:
    """Return the rows, or columns, of DaViT's output for a number of pixels."""
    sizes = zip(vision.patch_size, vision.patch_stride, vision.patch_padding, strict=True)
    return list(accumulate(sizes, lambda left, size: (left + 2 * size[2] - size[0]) // size[1] + 1, initial=side))[-1]


def map_image(data: Any, view: CheckpointView, prompt: EncoderPrompt) -> MappedInput:
    """Map an image to its tokens, followed by the prompt's, like transformers' Florence2Processor.

    data: see load_image. prompt: ``<CAPTION>`` or another task, which its question replaces; any other question; or
    token ids, which are unchanged. Raises MediaError for an image of more patches than positions, PromptError for the
    image's token in a prompt, and the errors of load_image, pixel_values and `question`.
    """
    values = pixel_values(load_image(data), read_image_settings(view))
    vision = view.config.vision_config
    height, width = (grid_side(vision, side) for side in values.shape[1:])
    if not 0 < min(height, width) <= max(height, width) <= vision.max_position_embeddings:
        raise MediaError(
            f"an image of {values.shape[2]} x {values.shape[1]} pixels has {width} x {height} patches, and this model "
            f"has positions for {vision.max_position_embeddings} x {vision.max_position_embeddings}"
        )
    text_ids = prompt.token_ids
    if text_ids is None:
        tokenizer, text = view.tokenizer, question(prompt.text or "")
        if hasattr(tokenizer, "bos_token"):
            text = f"{tokenizer.bos_token}{text}{tokenizer.eos_token}"
            text_ids = tokenizer(text, add_special_tokens=False).input_ids
        else:  # a lone tokenizer.json adds these tokens itself
            text_ids = tokenizer(text).input_ids
    placeholder = view.config.image_token_id
    if placeholder in text_ids:
        raise PromptError(f"the prompt has token {placeholder}, the image's placeholder: leave it out")
    token_ids = [placeholder] * (1 + height * width) + list(text_ids)
    return MappedInput({"pixel_values": values}, len(token_ids), token_ids)


class ImageProjection(nn.Module):
    """Projects DaViT's grid to the language model's width: the mean of all vectors, then each vector.

    Row and column positions are learned. The sinusoidal time of a video's first frame is added: sines 0, cosines 1.
    """

    def __init__(self, vision: Any) -> None:
        super().__init__()
        width, rows = vision.embed_dim[-1], vision.max_position_embeddings
        self.row_embeddings = nn.Parameter(torch.empty(rows, width // 2))
        self.column_embeddings = nn.Parameter(torch.empty(rows, width - width // 2))
        self.image_projection = nn.Linear(width, vision.projection_dim, bias=False)
        self.image_proj_norm = nn.LayerNorm(vision.projection_dim)

    def forward(self, grid: Tensor) -> Tensor:
        """grid: [images, width, rows, columns]. Returns [images, 1 + rows * columns, projection_dim]."""
        rows, columns = grid.shape[2:]
        places = (
            self.column_embeddings[None, :columns].expand(rows, -1, -1),
            self.row_embeddings[:rows, None].expand(-1, columns, -1),
        )
        x = (grid.permute(0, 2, 3, 1) + torch.cat(places, dim=-1)).flatten(1, 2)  # [images, rows * columns, width]
        x[..., 1::2] += 1.0
        return self.image_proj_norm(self.image_projection(torch.cat([x.mean(dim=1, keepdim=True), x], dim=1)))


class Florence2(ForConditionalGeneration):
    """Transformers' DaViT, and BART, in whose encoder an image's vectors replace its placeholders."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__(config, context)
        text = config.text_config
        self.vision_tower = transformers_encoder(
            config.vision_config, model_class="transformers:Florence2VisionBackbone"
        )
        self.projection = ImageProjection(config.vision_config)
        self.shared = VocabParallelEmbedding(text.vocab_size, text.d_model, group=context.group)
        self.embedding = BartEmbedding(text, self.shared)
        self.encoder = BartEncoder(text, self.embedding, pre_norm=False, context=context)
        self.decoder = BartDecoder(text, BartEmbedding(text, self.shared), pre_norm=False, context=context)
        tied = self.shared.weight if config.tie_word_embeddings else None
        self.head = VocabParallelHead(text.vocab_size, text.d_model, group=context.group, weight=tied)

    @classmethod
    def shape(cls, config: Any) -> ModelShape:
        """Return the shape, from a transformers Florence2Config. Its encoder does not read text without an image."""
        text = config.text_config
        return ModelShape.of_decoder(text, max_source_positions=text.max_position_embeddings, encoder_takes_text=False)

    @classmethod
    def longest_features(cls, config: Any) -> dict[str, Tensor]:
        """Return features of the largest square image that leaves a position for text."""
        vision, positions = config.vision_config, config.text_config.max_position_embeddings
        grid = min(math.isqrt(positions - 2), vision.max_position_embeddings)
        side = grid * math.prod(vision.patch_stride)
        num_image_tokens = 1 + grid_side(vision, side) ** 2
        ids = torch.zeros(positions, dtype=torch.int64)
        ids[:num_image_tokens] = config.image_token_id
        return {"pixel_values": torch.zeros(vision.in_channels, side, side), "encoder_input_ids": ids}

    def encode(
        self,
        encoder_input_ids: Tensor | None,
        encoder_positions: Tensor | None,
        attn_metadata: AttentionMetadata,
        **multimodal_kwargs: list[Tensor],
    ) -> Tensor:
        """pixel_values: a list of [channels, height, width]; ids and positions: see map_image. [tokens, d_model]."""
        assert encoder_input_ids is not None  # set by map_image
        assert encoder_positions is not None
        images = multimodal_kwargs["pixel_values"]
        alike = len({image.shape for image in images}) == 1
        batches = [torch.stack(images)] if alike else [image[None] for image in images]
        vectors = torch.cat(
            [self.projection(self.vision_tower(each).last_hidden_state).flatten(0, 1) for each in batches]
        )
        embedding = self.embedding
        x = self.shared(encoder_input_ids) * embedding.scale
        x[encoder_input_ids == self.config.image_token_id] = vectors.to(x.dtype)
        x = embedding.layernorm_embedding(x + embedding.embed_positions[encoder_positions + POSITION_OFFSET])
        return self.encoder.layers(x, attn_metadata)
