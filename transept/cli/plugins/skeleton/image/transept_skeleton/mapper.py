"""The encoder's input: pixels, prepared as the checkpoint's preprocessor_config.json says."""

from __future__ import annotations

from typing import Any

from transept.authoring import CheckpointView
from transept.multimodal import MappedInput
from transept.multimodal.image_mapping import image_shape, load_pixel_values, num_patches


def num_tokens(encoder: Any) -> int:
    """Return the number of encoder tokens of an image: its patches, and the class token. encoder: its config."""
    return num_patches(encoder) + 1


def map_image(data: Any, view: CheckpointView) -> MappedInput:
    """Return the input of `encode` for one image. data: as for `load_image`, such as a path. Raises MediaError."""
    encoder = view.config.encoder
    values = load_pixel_values(data, view, image_shape(encoder))  # float32 [channels, height, width]
    return MappedInput({"pixel_values": values}, num_tokens=num_tokens(encoder))
