"""Patches of Pix2Struct (Lee et al. 2023, section 2.1): as many as allowed, in the image's own proportions.

Input mappers of such families call `flattened_patches` on the result of `load_image`. No patch is padding, because
requests of different lengths share a batch. Nothing here draws a question above the image, which Pix2Struct's
checkpoints for questions (``is_vqa``) need.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from transept.errors import CheckpointError, shown, suggest
from transept.multimodal.image import Pixels
from transept.multimodal.image_settings import NEUTRAL, settings_in
from transept.registry.checkpoint_view import CheckpointView

if TYPE_CHECKING:
    import torch
    from torch import Tensor

KNOWN = ("max_patches", "patch_size", "do_normalize", "is_vqa")
MOST_PATCHES = 1 << 16  # larger numbers are errors in the settings


@dataclass(frozen=True)
class PatchSettings:
    """Settings of a Pix2StructImageProcessor: at most max_patches, each patch_height x patch_width pixels.

    do_normalize: by the mean and the standard deviation of each image.
    """

    max_patches: int = 2048
    patch_height: int = 16
    patch_width: int = 16
    do_normalize: bool = True


def read_patch_settings(view: CheckpointView) -> PatchSettings:
    """Return a checkpoint's settings, from the files of `read_image_settings`.

    Raises CheckpointError for missing files, files of another form, another type of processor, an unknown setting, and
    a value out of range.
    """
    settings, source = settings_in(view)
    if settings.get("image_processor_type") not in ("Pix2StructImageProcessor", "Pix2StructImageProcessorFast"):
        raise CheckpointError(f"{source} is not of a Pix2StructImageProcessor: read_image_settings reads others")
    given = {name: value for name, value in settings.items() if value is not None and name not in NEUTRAL}
    if unknown := sorted(given.keys() - KNOWN):
        raise CheckpointError(
            f"{source} sets {unknown[0]} to {shown(given[unknown[0]])}, which no Pix2StructImageProcessor does."
            f"{suggest(unknown[0], KNOWN)}"
        )
    if given.get("is_vqa"):
        raise CheckpointError(f"{source} sets is_vqa, for questions drawn above the image, which is not done here")
    if not isinstance(given.get("do_normalize", True), bool):
        raise CheckpointError(f"{source} sets do_normalize to {shown(given['do_normalize'])}, not to true or false")
    size = given.get("patch_size", {"height": 16, "width": 16})
    sides = [size.get("height"), size.get("width")] if isinstance(size, dict) else [size, size]
    numbers: list[Any] = [given.get("max_patches", 2048), *sides]
    if not all(type(number) is int and 0 < number <= MOST_PATCHES for number in numbers):
        raise CheckpointError(
            f"{source} sets max_patches to {shown(numbers[0])} and patch_size to {shown(size)}, where numbers from 1 "
            f"to {MOST_PATCHES} belong"
        )
    max_patches, patch_height, patch_width = numbers
    return PatchSettings(max_patches, patch_height, patch_width, given.get("do_normalize", True))


def flattened_patches(image: Pixels, settings: PatchSettings, device: torch.device | str = "cpu") -> Tensor:
    """Compute a Pix2Struct encoder's input for one image.

    image: uint8 RGB [height, width, 3], from `load_image`. device: of the result.
    Returns float32 [patches, 2 + patch_height x patch_width x 3], at most max_patches, row by row: the numbers of the
    patch's row and column, from 1, and its pixels. Equal to transformers' Pix2StructImageProcessor without its zero
    padding; PyTorch resamples, with antialiasing, in both. Needs about 24 bytes of memory per pixel of the image.
    """
    import torch

    values = image.astype(np.float32)
    if settings.do_normalize:
        least = 1.0 / math.sqrt(values.size)  # of an image in one colour
        mean, deviation = values.mean(), max(values.std(), np.float32(least))
        values -= mean
        values /= deviation
    high, wide = settings.patch_height, settings.patch_width
    rows, columns = _grid(image.shape[0], image.shape[1], settings)
    whole = torch.from_numpy(values).to(device).permute(2, 0, 1)[None]  # [1, 3, height, width]
    whole = torch.nn.functional.interpolate(whole, (rows * high, columns * wide), mode="bilinear", antialias=True)
    patches = whole.view(3, rows, high, columns, wide).permute(1, 3, 2, 4, 0).reshape(rows * columns, -1)
    numbers = torch.cartesian_prod(torch.arange(1, rows + 1), torch.arange(1, columns + 1)).to(patches)
    return torch.cat([numbers, patches], dim=1)


def _grid(height: int, width: int, settings: PatchSettings) -> tuple[int, int]:
    """Return the numbers of rows and columns of patches, rounded as in transformers."""
    high, wide, most = settings.patch_height, settings.patch_width, settings.max_patches
    scale = (most * (high / height) * (wide / width)) ** 0.5
    return max(min(int(scale * height / high), most), 1), max(min(int(scale * width / wide), most), 1)
