"""Input of encoders that read patches of images of one size: the sizes in their configs, and images of that size.

Input mappers and models of vision families call it. The three steps of `load_pixel_values` are in `image`,
`image_settings` and `image_processing`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transept.errors import CheckpointError
from transept.multimodal.image import load_image
from transept.multimodal.image_processing import pixel_values
from transept.multimodal.image_settings import read_image_settings
from transept.registry.checkpoint_view import CheckpointView

if TYPE_CHECKING:
    from torch import Tensor


def image_shape(config: Any) -> tuple[int, int, int]:
    """Return the channels, height and width of an encoder's images, from its transformers config."""
    return (config.num_channels, *_height_width(config.image_size))


def patch_shape(config: Any) -> tuple[int, int]:
    """Return the height and width of a patch in pixels, from the encoder's config."""
    return _height_width(config.patch_size)


def num_patches(config: Any) -> int:
    """Return the number of whole patches in an image, from the encoder's config."""
    _, height, width = image_shape(config)
    patch_height, patch_width = patch_shape(config)
    return (height // patch_height) * (width // patch_width)


def load_pixel_values(image: Any, view: CheckpointView, shape: tuple[int, int, int]) -> Tensor:
    """Load an image and process it with the checkpoint's settings.

    image: as for `load_image`. shape: channels, height and width of the encoder's images, from its config.
    Returns float32 of that shape. Raises MediaError for data that is not an image, CheckpointError if the settings make
    images of another shape.
    """
    values = pixel_values(load_image(image), read_image_settings(view))
    if tuple(values.shape) != tuple(shape):
        made, read = (" x ".join(map(str, each)) for each in (values.shape, shape))
        raise CheckpointError(
            f'"{view.path}" has a preprocessor_config.json for images of {made} (channels, height, width), but its '
            f"encoder reads {read} by its config.json: give both the same size"
        )
    return values


def _height_width(size: Any) -> tuple[int, int]:
    """Return the height and width of a size in a config: one number, or both."""
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return height, width
