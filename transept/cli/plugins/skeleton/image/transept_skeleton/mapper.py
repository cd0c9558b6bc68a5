"""What the encoder takes: pixels, prepared as the checkpoint's preprocessor_config.json says."""

from __future__ import annotations

from typing import Any

from transept.authoring import CheckpointView
from transept.multimodal import MappedInput
from transept.multimodal.image_mapping import image_shape, load_pixel_values, num_patches


def num_tokens(encoder: Any) -> int:
    """Encoder tokens of an image, by the encoder's config: a patch each, and the class token before them."""
    return num_patches(encoder) + 1


def map_image(data: Any, view: CheckpointView) -> MappedInput:
    """data: what `load_image` takes, such as a path. Raises MediaError for what is no image."""
    encoder = view.config.encoder
    values = load_pixel_values(data, view, image_shape(encoder))  # float32 [channels, height, width]
    return MappedInput({"pixel_values": values}, num_tokens=num_tokens(encoder))
