"""pixel_values: from RGB to a vision encoder's input, with a checkpoint's ImageSettings.

Input mappers call it on the result of `load_image`. It equals transformers' image processors over Pillow
(``ViTImageProcessorPil`` and similar ones): Pillow resamples, on the host; then the device pads or crops the bytes, and
looks the values up in a table of the 256 levels. Nothing here decodes a file or reads settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from transept.errors import MediaError, require_packages
from transept.multimodal.image import MAX_PIXELS, Pixels
from transept.multimodal.image_settings import BICUBIC, PAGES, ImageSettings, ImageSize

if TYPE_CHECKING:
    import torch
    from torch import Tensor

DARK = 200  # of 255, from the darkest pixel to the lightest; the lighter border of a page is its margin
REDUCING_GAP = 2.0  # of Pillow's resize in Nougat's thumbnails: integer steps to twice the size, then the filter


def pixel_values(image: Pixels, settings: ImageSettings, device: torch.device | str = "cpu") -> Tensor:
    """Compute an encoder's input for one image.

    image: uint8 RGB [height, width, 3], from `load_image`. device: of the result.
    Returns float32 [3, height, width], of the size in the settings; with the same Pillow, bit-equal to transformers'
    image processors.
    Raises MediaError for an image that is too long and narrow to be resized, or larger than the size to pad to;
    MissingPackageError without Pillow.
    """
    require_packages("resizing images", {"PIL": "pillow"}, "image")
    import torch
    from PIL import Image

    picture = Image.fromarray(image)
    if settings.do_crop_margin:
        picture = _without_margin(picture)
    height, width = settings.size.box
    if settings.do_align_long_axis and (height - width) * (picture.height - picture.width) < 0:  # one is upright
        picture = picture.transpose(Image.Transpose.ROTATE_270)
    if settings.do_resize:
        picture = _resized(picture, _target(picture, settings), settings.resample)
    if settings.do_thumbnail:
        picture = _thumbnail(picture, settings)
    pixels = torch.from_numpy(np.array(picture)).to(device).permute(2, 0, 1)  # [3, height, width]
    if settings.do_pad:
        pixels = _padded(pixels, settings.size)
    if settings.do_center_crop and settings.crop_size:
        pixels = _center(pixels, settings.crop_size)
    # The values of the levels 0 to 255 of each channel, rounded like transformers.
    scaled = np.arange(256, dtype=np.float64) * (settings.rescale_factor if settings.do_rescale else 1)
    table = np.tile(scaled.astype(np.float32), (3, 1))
    if settings.do_normalize:
        mean, std = (np.array([channels], np.float32).T for channels in (settings.image_mean, settings.image_std))
        table = (table - mean) / std
    levels = torch.from_numpy(table).to(device)  # [3, 256]
    values = torch.empty(pixels.shape, dtype=torch.float32, device=device)
    for level, channel, out in zip(levels, pixels, values, strict=True):
        torch.index_select(level, 0, channel.flatten().int(), out=out.view(-1))
    return values


def _without_margin(picture: Any) -> Any:
    """Crop a picture to the box around its dark pixels; a picture in one colour stays whole."""
    grey = np.asarray(picture.convert("L"))
    lightest, darkest = grey.max(), grey.min()
    if lightest == darkest:
        return picture
    levels = np.arange(256, dtype=np.float64) - darkest
    is_dark = (levels / (lightest - darkest) * 255 < DARK)[grey]  # [height, width]
    rows, columns = np.flatnonzero(is_dark.any(axis=1)), np.flatnonzero(is_dark.any(axis=0))
    return picture.crop((int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1))


def _target(picture: Any, settings: ImageSettings) -> tuple[int, int]:
    """Return the height and width to resize a picture to, truncated to integers as in transformers."""
    size, height, width = settings.size, picture.height, picture.width
    if settings.processor in PAGES:
        return _with_short_edge(height, width, min(size.box))
    if size.shortest_edge and size.longest_edge:
        return _between_edges(height, width, size.shortest_edge, size.longest_edge)
    if size.shortest_edge:
        return _with_short_edge(height, width, size.shortest_edge)
    if size.max_height and size.max_width:
        scale = min(size.max_height / height, size.max_width / width)
        return int(height * scale), int(width * scale)
    return size.box


def _with_short_edge(height: int, width: int, shortest: int) -> tuple[int, int]:
    if width <= height:
        return int(shortest * height / width), shortest
    return shortest, int(shortest * width / height)


def _between_edges(height: int, width: int, shortest: int, longest: int) -> tuple[int, int]:
    """Return the height and width for a short edge of `shortest`, or less if the long edge would exceed `longest`."""
    short, long = min(height, width), max(height, width)
    exact = float(shortest)
    if long / short * shortest > longest:
        exact = longest * short / long
    if short == round(exact):
        return height, width
    if width < height:
        return int(exact * height / width), round(exact)
    return round(exact), int(exact * width / height)


def _thumbnail(picture: Any, settings: ImageSettings) -> Any:
    """Shrink the picture until it fits into `size`."""
    height, width = min(picture.height, settings.size.box[0]), min(picture.width, settings.size.box[1])
    if (height, width) == (picture.height, picture.width):
        return picture
    if picture.height > picture.width:
        width = int(picture.width * height / picture.height)
    elif picture.width > picture.height:
        height = int(picture.height * width / picture.width)
    if settings.processor == "Nougat":
        return _resized(picture, (height, width), BICUBIC, REDUCING_GAP)
    return _resized(picture, (height, width), settings.resample or BICUBIC)  # transformers takes 0, nearest, for unset


def _resized(picture: Any, to: tuple[int, int], resample: int, reducing_gap: float | None = None) -> Any:
    """Resize a picture. Raises MediaError for a huge result or intermediate: Pillow resamples rows, then columns."""
    height, width = to
    if not height or not width or max(height, picture.height) * width > MAX_PIXELS:
        raise MediaError(
            f"the image is too long and narrow for this model, which resizes {picture.width} x {picture.height} pixels "
            f"to {width} x {height}; cut it into several"
        )
    return picture.resize((width, height), resample=resample, reducing_gap=reducing_gap)


def _padded(pixels: Tensor, size: ImageSize) -> Tensor:
    """Centre [3, height, width] on black of this size. Raises MediaError for a larger image."""
    import torch

    high, wide = size.box[0] - pixels.shape[1], size.box[1] - pixels.shape[2]
    if high < 0 or wide < 0:
        raise MediaError(
            f"the image has {pixels.shape[2]} x {pixels.shape[1]} pixels, and this checkpoint pads images to "
            f"{size.box[1]} x {size.box[0]} without making them smaller: resize it to fit"
        )
    left, top = wide // 2, high // 2
    return torch.nn.functional.pad(pixels, (left, wide - left, top, high - top))


def _center(pixels: Tensor, size: ImageSize) -> Tensor:
    """Crop [3, height, width] to its middle of this size, with black around a smaller image."""
    import torch

    high, wide = size.box[0] - pixels.shape[1], size.box[1] - pixels.shape[2]
    left, top = -(-wide // 2), -(-high // 2)  # rounded up; below 0, pad cuts off
    return torch.nn.functional.pad(pixels, (left, wide - left, top, high - top))
