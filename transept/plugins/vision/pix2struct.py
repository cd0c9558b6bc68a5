"""Pix2Struct (Lee et al. 2023): an encoder of patches that keep an image's proportions, and T5's decoder."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from transept.authoring import (
    AttentionMetadata,
    CheckpointError,
    CheckpointView,
    EncoderLayer,
    EncoderLayers,
    ForConditionalGeneration,
    LayerConfig,
    LayerContext,
    ModelShape,
    RMSNorm,
    VocabParallelEmbedding,
    VocabParallelHead,
)
from transept.multimodal import MappedInput
from transept.multimodal.image import load_image
from transept.multimodal.image_patches import flattened_patches, read_patch_settings
from transept.plugins.t5.model import ATTENTION_SCALE, T5Decoder


def map_image(data: Any, view: CheckpointView) -> MappedInput:
    """Map an image to patches and their places, from row 1 and column 1.

    data: see load_image. Raises the errors of load_image and read_patch_settings, and CheckpointError if a patch may
    be beyond the encoder's last row or column.
    """
    settings, rows = read_patch_settings(view), view.config.vision_config.seq_len
    if settings.max_patches >= rows:
        raise CheckpointError(
            f'"{view.path}" makes up to {settings.max_patches} patches (max_patches in preprocessor_config.json), '
            f"but its encoder has only {rows} rows and columns (seq_len in config.json). Lower max_patches"
        )
    patches = flattened_patches(load_image(data), settings)
    return MappedInput({"patches": patches[:, 2:], "places": patches[:, :2].long()}, len(patches))


class PatchEncoder(nn.Module):
    """Encodes patches by T5's layers, with embedded rows and columns instead of relative positions."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__()
        width = config.hidden_size
        norm = partial(RMSNorm, eps=config.layer_norm_eps)
        self.patch_projection = nn.Linear(config.patch_embed_hidden_size, width)
        self.row_embedder = nn.Embedding(config.seq_len, width)
        self.column_embedder = nn.Embedding(config.seq_len, width)
        layer = LayerConfig(
            width,
            config.num_attention_heads,
            config.d_ff,
            config.dense_act_fn,
            pre_norm=True,
            norm=norm,
            gated=True,
            head_dim=config.d_kv,
            scale=ATTENTION_SCALE,
            bias=False,
        )
        self.layers = EncoderLayers(EncoderLayer(layer, context) for _ in range(config.num_hidden_layers))
        self.norm = norm(width)

    def forward(self, metadata: AttentionMetadata, patches: list[Tensor], places: list[Tensor]) -> Tensor:
        """patches, places: see map_image, [tokens, pixels] and [tokens, row|column]. Returns [tokens, hidden_size]."""
        rows, columns = torch.cat(places).unbind(dim=1)
        x = self.patch_projection(torch.cat(patches)) + self.row_embedder(rows) + self.column_embedder(columns)
        return self.norm(self.layers(x, metadata))


def t5_names(config: Any) -> SimpleNamespace:
    """Return a Pix2StructTextConfig with the names of a T5Config."""
    return SimpleNamespace(
        d_model=config.hidden_size,
        num_heads=config.num_heads,
        d_kv=config.d_kv,
        d_ff=config.d_ff,
        dense_act_fn=config.dense_act_fn,
        is_gated_act=True,
        layer_norm_epsilon=config.layer_norm_epsilon,
        num_decoder_layers=config.num_layers,
        relative_attention_num_buckets=config.relative_attention_num_buckets,
        relative_attention_max_distance=config.relative_attention_max_distance,
    )


class Pix2Struct(ForConditionalGeneration):
    """An encoder of patches and T5's decoder, whose outputs are not scaled."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__(config, context)
        text = config.text_config
        self.encoder = PatchEncoder(config.vision_config, context)
        self.shared = VocabParallelEmbedding(text.vocab_size, text.hidden_size, group=context.group)
        self.decoder = T5Decoder(t5_names(text), self.shared, bias_in_every_layer=False, context=context)
        tied = self.shared.weight if config.tie_word_embeddings else None
        self.head = VocabParallelHead(text.vocab_size, text.hidden_size, group=context.group, weight=tied)

    @classmethod
    def shape(cls, config: Any) -> ModelShape:
        """Return the shape, from a transformers Pix2StructConfig. The decoder's positions have no bound."""
        text = config.text_config
        return ModelShape(
            num_decoder_layers=text.num_layers,
            num_kv_heads=text.num_heads,
            head_dim=text.d_kv,
            vocab_size=text.vocab_size,
            max_source_positions=config.vision_config.seq_len,
            max_target_positions=None,
            encoder_takes_text=False,
        )

    @classmethod
    def longest_features(cls, config: Any) -> dict[str, Tensor]:
        """See ForConditionalGeneration.longest_features."""
        vision = config.vision_config
        places = torch.zeros(vision.seq_len, 2, dtype=torch.int64)
        return {"patches": torch.zeros(vision.seq_len, vision.patch_embed_hidden_size), "places": places}
