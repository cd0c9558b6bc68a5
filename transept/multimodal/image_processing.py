"""pixel_values: from RGB to what a vision encoder takes, as a checkpoint's ImageSettings say.

Input mappers call it on what `load_image` gives. The numbers are those of transformers' image processors over Pillow
(``ViTImageProcessorPil`` and its like): Pillow resamples, on the host; then bytes go to the device, which pads or crops
them and reads the numbers from a table of the 256 levels. Nothing here decodes a file or reads settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from transept.errors import MediaError, require_packages
from transept.multimodal.image import MAX_PIXELS, Pixels
from transept.multimodal.image_settings import BICUBIC, PAGES, ImageSettings, ImageSize

if TYPE_CHECKING:
    import torch
    from torch import Tensor

DARK = 200  # of 255, where the darkest pixel is 0 and the lightest 255: what is lighter all around is margin
REDUCING_GAP = (
    2.0  # of Pillow's resize in Nougat's thumbnails: whole steps first, down to twice the size, then the filter
)


def pixel_values(image: Pixels, settings: ImageSettings, device: torch.device | str = "cpu") -> Tensor:
    """What the encoder takes of one image.

    image: uint8 RGB [height, width, 3], as `load_image` returns it. device: where the values are to be.
    Returns float32 [3, height, width], of the size that the settings say. Equal to transformers' image processors, to
    the last bit where Pillow is the same.
    Raises MediaError for an image so long and narrow that it cannot be resized, or that is larger than what it is
    padded to; MissingPackageError without Pillow.
    """
    require_packages("resizing images", {"PIL": "pillow"}, "image")
    import torch
    from PIL import Image

    picture = Image.fromarray(image)
    if settings.do_crop_margin:
        picture = _without_margin(picture)
    if settings.do_align_long_axis and _lies_across(picture, settings.size):
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
    levels = torch.from_numpy(_levels(settings)).to(device)  # [3, 256]
    values = torch.empty(pixels.shape, dtype=torch.float32, device=device)
    for level, channel, out in zip(levels, pixels, values, strict=True):
        torch.index_select(level, 0, channel.flatten().int(), out=out.view(-1))
    return values


def _levels(settings: ImageSettings) -> npt.NDArray[np.float32]:
    """What becomes of the levels 0 to 255 of each channel, float32 [3, 256], rounded where transformers rounds."""
    levels = np.arange(256, dtype=np.float64) * (settings.rescale_factor if settings.do_rescale else 1)
    values = np.tile(levels.astype(np.float32), (3, 1))
    if settings.do_normalize:
        mean, std = (np.array([channels], np.float32).T for channels in (settings.image_mean, settings.image_std))
        values = (values - mean) / std
    return values


def _lies_across(picture: Any, size: ImageSize) -> bool:
    """Whether a picture is wide where `size` is high, or the other way round; what is square is neither."""
    height, width = size.box
    return (height - width) * (picture.height - picture.width) < 0


def _without_margin(picture: Any) -> Any:
    """The box around all that is dark; a picture of one colour as it is."""
    grey = np.asarray(picture.convert("L"))
    lightest, darkest = grey.max(), grey.min()
    if lightest == darkest:
        return picture
    levels = np.arange(256, dtype=np.float64) - darkest
    is_dark = (levels / (lightest - darkest) * 255 < DARK)[grey]  # [height, width]
    rows, columns = np.flatnonzero(is_dark.any(axis=1)), np.flatnonzero(is_dark.any(axis=0))
    return picture.crop((int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1))


def _target(picture: Any, settings: ImageSettings) -> tuple[int, int]:
    """The height and the width to which a picture is resized, cut to integers as in transformers."""
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
    """The short edge as asked for, or shorter, where the long one would be longer than `longest`."""
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
    """The picture, no side longer than that of `size`."""
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
    """Raises MediaError where it would become huge, or on the way: Pillow resamples rows first, then columns."""
    height, width = to
    if not height or not width or max(height, picture.height) * width > MAX_PIXELS:
        raise MediaError(
            f"the image is too long and narrow for this model: of {picture.width} x {picture.height} pixels it makes "
            f"{width} x {height}; cut it into several"
        )
    return picture.resize((width, height), resample=resample, reducing_gap=reducing_gap)


def _padded(pixels: Tensor, size: ImageSize) -> Tensor:
    """[3, height, width] in the middle of black, of this size. Raises MediaError for what is larger."""
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
    """The middle of [3, height, width], of this size, with black around what is smaller."""
    import torch

    high, wide = size.box[0] - pixels.shape[1], size.box[1] - pixels.shape[2]
    left, top = -(-wide // 2), -(-high // 2)  # rounded up; below 0, pad cuts off
    return torch.nn.functional.pad(pixels, (left, wide - left, top, high - top))
