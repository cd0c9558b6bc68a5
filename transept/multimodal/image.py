"""Images: from a file, bytes, a PIL image, an array or a tensor to RGB, a byte a channel.

Input mappers of vision families call it; `transept.multimodal.image_processing` makes of it what an encoder takes.
Pillow decodes, and loads with the first image. What is taken in is bounded before it is decoded, and nothing here opens
a URL.
"""

from __future__ import annotations

import io
import os
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, BinaryIO

import numpy as np
import numpy.typing as npt

from transept.errors import MediaError, MediaTooLargeError, message_of, require_packages
from transept.multimodal.audio_limits import limit
from transept.multimodal.audio_url import is_url
from transept.multimodal.image_bytes import EncodedImage
from transept.options import take_options

Pixels = npt.NDArray[np.uint8]  # RGB [height, width, 3]

MAX_BYTES = 128 << 20  # 128 MiB; a page of A4 at 500 dpi is 72 MB as an uncompressed TIFF
MAX_PIXELS = 30_000_000  # such a page has 24 million; Pillow takes 4 to 16 bytes for each while it decodes
READ_BYTES = 1 << 20  # at a time
STRIP_PIXELS = 1 << 20  # that are converted at a time, so that no second copy of a large image is in memory

# What Pillow decodes in bounded time and memory. Others call programs (EPS), or need no magic number (TGA).
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "TIFF", "BMP", "PPM")
PDF_MAGIC = b"%PDF"
READABLE = "pass a whole PNG, JPEG, WebP, GIF, TIFF, BMP or PPM file, or a PIL image of any other"
EXPECTED = (
    "pass uint8, uint16 or floats in 0..1, of shape [height, width], [height, width, channels] or [channels, height, "
    "width], with 1 channel (grey), 3 (RGB) or 4 (RGBA)"
)

OPENING = threading.Lock()  # of what opens an image without a warning: the filters of warnings are the process's

ORIENTATION_TAG = 0x0112  # of EXIF
MAX_EXIF_CHARACTERS = 1 << 20
TILE_WIDTH, TILE_LENGTH = 322, 323  # tags of TIFF
ORIENTATIONS: dict[int, Callable[[Pixels], Pixels]] = {  # EXIF 2.32, section 4.6.4: how an image is to be shown
    2: lambda pixels: pixels[:, ::-1],
    3: lambda pixels: pixels[::-1, ::-1],
    4: lambda pixels: pixels[::-1],
    5: lambda pixels: pixels.transpose(1, 0, 2),
    6: lambda pixels: pixels.transpose(1, 0, 2)[:, ::-1],
    7: lambda pixels: pixels[::-1, ::-1].transpose(1, 0, 2),
    8: lambda pixels: pixels.transpose(1, 0, 2)[::-1],
}


@dataclass(frozen=True)
class ImageLimits:
    """The limits on one image; None: no limit of ours.

    Raises ParameterError for anything but a number above 0 and None.
    """

    max_image_bytes: Annotated[int | None, limit("refuse larger images", "Before they are decoded.")] = MAX_BYTES
    max_image_pixels: Annotated[
        int | None,
        limit(
            "refuse images with more pixels",
            "Height times width; Pillow has a limit of its own beyond 179 million (``PIL.Image.MAX_IMAGE_PIXELS``).",
        ),
    ] = MAX_PIXELS

    def __post_init__(self) -> None:
        take_options(self)

    def check_bytes(self, num_bytes: int, name: str) -> None:
        """Raise MediaError for an encoded image of more bytes than max_image_bytes."""
        if self.max_image_bytes is not None and num_bytes > self.max_image_bytes:
            raise MediaTooLargeError(
                f"{name} has more than the {self.max_image_bytes} bytes of {{max_image_bytes}}: compress it, or raise "
                "that limit",
                others=["max_image_bytes"],
            )

    def check_pixels(self, height: int, width: int, name: str) -> None:
        """Raise MediaError for an image without pixels, or of more than max_image_pixels."""
        if height < 1 or width < 1:
            raise MediaError(f"{name} holds no pixels: it is {width} x {height}; pass one of 1 x 1 or more")
        if self.max_image_pixels is not None and height * width > self.max_image_pixels:
            raise MediaTooLargeError(
                f"{name} has {width} x {height} pixels, more than the {self.max_image_pixels} of "
                "{max_image_pixels}: make it smaller, or raise that limit",
                others=["max_image_pixels"],
            )


def load_image(image: Any, limits: ImageLimits | None = None) -> Pixels:
    """Decode an image and make RGB of it, as it is to be looked at.

    image: a path; the bytes of a file; a file or pipe opened to read bytes, from where it stands; a PIL image; an array
        or tensor, uint8, uint16 or floats in 0..1, [height, width], [height, width, channels] or [channels, height,
        width], with 1 channel (grey), 3 (RGB) or 4 (RGBA); where either end could be channels, the last axis is.
    limits: on its bytes and pixels, checked before it is decoded; None: the defaults of ImageLimits.
    Returns uint8 [height, width, 3], which may be the array itself that was given. A file is turned as its EXIF
    orientation says. What is transparent lies on white. Of 16 bits a channel the nearest 8 are kept. Of several frames
    or pages, the first; of a PIL image, the one at which it stands.
    Raises MediaError for what is no image, is cut off or damaged, or is beyond a limit; MissingPackageError without
    Pillow, which arrays and tensors do not need.
    """
    limits = limits or ImageLimits()
    if _is_pil_image(image):
        return _decoded(lambda: image, image_name(image), limits)
    if isinstance(image, bytes | bytearray | memoryview):
        try:
            name = image_name(image)
            limits.check_bytes(memoryview(image).nbytes, name)
            data = bytes(image)
        except MediaError:
            raise
        except (BufferError, ValueError) as error:  # released
            raise MediaError(f"image data in a {type(image).__name__} cannot be read: {error}; pass bytes") from None
        return _from_bytes(data, name, limits)
    if isinstance(image, io.TextIOBase):
        raise MediaError('an image came as a file opened to read text; open it with "rb"')
    if hasattr(image, "read"):
        name = image_name(image)
        return _from_bytes(read_file(image, name, limits), name, limits)
    if isinstance(image, str | os.PathLike):
        return _from_path(image, limits)
    if hasattr(image, "__array__") or hasattr(image, "__array_interface__"):
        return _from_array(image, limits)
    raise MediaError(
        f"an image of type {type(image).__name__} cannot be read: pass a path, the bytes of a file, a file opened to "
        "read bytes, a PIL image, an array or a tensor"
    )


def image_name(image: Any) -> str:
    """How messages name an image that is given as to `load_image`."""
    if _is_pil_image(image):
        own = getattr(image, "filename", None)
        return f'the PIL image of "{own}"' if own and isinstance(own, str) else f"the PIL image in mode {image.mode}"
    if isinstance(image, bytes | bytearray | memoryview):
        return f"image data of {memoryview(image).nbytes} bytes"
    if hasattr(image, "read"):
        own = getattr(image, "name", None)
        return f'the image from "{own}"' if isinstance(own, str) else f"the image from an open {type(image).__name__}"
    return f'image file "{os.fspath(image)}"' if isinstance(image, str | os.PathLike) else "the image"


def _is_pil_image(image: Any) -> bool:
    pillow = sys.modules.get("PIL.Image")  # not loaded, then it is none
    return pillow is not None and isinstance(image, pillow.Image)


def _from_path(path: str | os.PathLike[str], limits: ImageLimits) -> Pixels:
    try:
        name = image_name(path)
    except TypeError as error:
        raise MediaError(f"an image of type {type(path).__name__} names no file: {error}; pass a path") from None
    if is_url(os.fspath(path)):
        raise MediaError(f"{name} is a URL, and none is fetched: download it, and pass the path of a local file")
    try:
        with open(path, "rb") as file:
            limits.check_bytes(os.fstat(file.fileno()).st_size, name)
            data = read_file(file, name, limits)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        if isinstance(error, MediaError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise MediaError(f"{name} cannot be opened: {reason}; pass the path of a local file") from None
    return _from_bytes(data, name, limits)


def read_file(file: BinaryIO, name: str, limits: ImageLimits) -> bytes:
    """All that a file or a pipe gives, given up at the limit. Raises MediaError, with its name, for one that fails."""
    held = io.BytesIO()
    while True:
        try:
            piece = file.read(READ_BYTES)
        except Exception as error:  # a stream is anybody's: closed, cut off, or broken in its own way
            reason = f"{type(error).__name__}: {message_of(error)}"
            raise MediaError(f"{name} cannot be read: {reason}; pass a file that can") from error
        if not piece:
            return held.getvalue()
        if not isinstance(piece, bytes):
            raise MediaError(f'{name} gives {type(piece).__name__}, not bytes: open it with mode "rb"')
        held.write(piece)
        limits.check_bytes(held.tell(), name)


def _from_bytes(data: bytes, name: str, limits: ImageLimits) -> Pixels:
    if not data:
        raise MediaError(f"{name} is empty: {READABLE}")
    require_packages("reading images", {"PIL": "pillow"}, "image")
    from PIL import Image, UnidentifiedImageError

    file = EncodedImage(data, name)

    def opened() -> Any:
        with OPENING, warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # check_pixels tells of our own limit
            image = Image.open(file, formats=FORMATS)
        file.opened()
        return image

    try:
        return _decoded(opened, name, limits)
    except UnidentifiedImageError:  # its own message tells where the bytes are in memory
        if data.startswith(PDF_MAGIC):
            raise MediaError(
                f"{name} is a PDF: name a file that ends in .pdf to transept read, not standard input; in Python, pass "
                "the pages that transept.multimodal.pdf.pdf_pages makes of it"
            ) from None
        raise MediaError(f"{name} is no image that can be read: {READABLE}") from None


def _decoded(opened: Callable[[], Any], name: str, limits: ImageLimits) -> Pixels:
    """opened: gives the PIL image, which has its size before it is decoded. Raises UnidentifiedImageError as it is."""
    from PIL import Image, UnidentifiedImageError

    try:
        image = opened()
        limits.check_pixels(image.height, image.width, name)
        if tags := getattr(image, "tag_v2", None):  # of a TIFF, whose tiles are decoded whole and may be larger than it
            limits.check_pixels(tags.get(TILE_LENGTH, 1), tags.get(TILE_WIDTH, 1), f"a tile of {name}")
        image.load()
        limits.check_pixels(image.height, image.width, name)  # a decoder may find another size
        if image.mode == "I" and image.format != "PPM":  # which says what is white
            low, high = image.getextrema()
            _check_white(low, high, name)
        pixels = np.empty((image.height, image.width, 3), np.uint8)
        rows = max(STRIP_PIXELS // image.width, 1)
        for top in range(0, image.height, rows):
            below = min(top + rows, image.height)
            pixels[top:below] = _rgb(image.crop((0, top, image.width, below)), name)
        orient = ORIENTATIONS.get(_orientation(image))
    except (MediaError, UnidentifiedImageError):
        raise
    except Image.DecompressionBombError:
        most, ours = 2 * (Image.MAX_IMAGE_PIXELS or 0), limits.max_image_pixels
        if ours is not None and ours <= most:
            raise MediaError(
                f"{name} has more than {most} pixels, and so more than the {ours} of {{max_image_pixels}}: make it "
                "smaller",
                others=["max_image_pixels"],
            ) from None
        raise MediaError(
            f"{name} has more than {most} pixels, and Pillow opens none over twice PIL.Image.MAX_IMAGE_PIXELS: make it "
            "smaller"
        ) from None
    except Exception as error:  # damaged files make decoders raise anything, from OSError to struct.error
        reason = message_of(error).rstrip(".") or type(error).__name__
        raise MediaError(f"{name} cannot be decoded ({reason}): {READABLE}") from error
    return np.ascontiguousarray(orient(pixels)) if orient else pixels


def _orientation(image: Any) -> Any:
    """EXIF's; 1, as it lies, where there is none or it cannot be read. TIFF's has been applied by Pillow."""
    if any(len(image.info.get(key, "")) > MAX_EXIF_CHARACTERS for key in ("exif", "Raw profile type exif")):
        return 1  # made to fill the memory
    try:
        return image.getexif().get(ORIENTATION_TAG, 1)
    except Exception:  # the picture is whole: other viewers show it without, too
        return 1


def _rgb(image: Any, name: str) -> Pixels:
    """A PIL image in any mode -> uint8 [height, width, 3], or [height, width, 1] for grey of more than 8 bits."""
    from PIL import Image

    transparent = image.info.get("transparency")
    if image.mode.startswith(("I", "F")):
        values = np.asarray(image)
        if image.mode == "I":
            values = values.astype(np.uint16)  # see _check_white
        if isinstance(transparent, int):  # the grey that is
            values = np.where(values == transparent, values.dtype.type(0xFFFF), values)
        return _to_8_bits(values, name)[:, :, None]
    if transparent is not None or image.mode in ("RGBA", "LA", "PA", "RGBa", "La"):
        if image.mode in ("RGBa", "La"):  # premultiplied
            image = image.convert(image.mode.upper())
        white = Image.new("RGBA", image.size, "white")
        return np.asarray(Image.alpha_composite(white, image.convert("RGBA")))[:, :, :3]
    return np.asarray(image.convert("RGB"))


def _check_white(low: int, high: int, name: str) -> None:
    """Raise MediaError for integers of 32 bits, from low to high, unless they are clearly the 16 bits of a scan.

    0..255 may as well be 8 bits, which as 16 would be read as nearly black; where all are 0, they are black in both.
    """
    if low < 0 or high > 0xFFFF or 0 < high <= 0xFF:
        raise MediaError(
            f"{name} has integers of 32 bits, from {low} to {high}, and does not say which is white: make it one of 8 "
            'or 16 bits, such as image.convert("L") where 255 is white'
        )


def _to_8_bits(values: npt.NDArray[Any], name: str) -> Pixels:
    """uint8, uint16 or floats in 0..1, of any shape, to the nearest of 256 levels. Raises MediaError for others."""
    if values.dtype == np.uint8:
        return values
    if values.dtype.kind == "u" and values.dtype.itemsize == 2:
        return ((values.astype(np.uint32) * 255 + 0x7FFF) // 0xFFFF).astype(np.uint8)
    if values.dtype.kind != "f":
        raise MediaError(f"{name} has dtype {values.dtype}: {EXPECTED}")
    low, high = float(values.min()), float(values.max())
    if not (low >= 0 and high <= 1):  # NaN is neither
        raise MediaError(f"{name} has floats from {low:g} to {high:g}: divide them by what is white, and {EXPECTED}")
    return np.rint(values * 255).astype(np.uint8)


def _from_array(image: Any, limits: ImageLimits) -> Pixels:
    """An array or tensor -> RGB; it is as large as its shape says before it is looked at."""
    name, torch = "the image", sys.modules.get("torch")  # not loaded, then it is no tensor
    try:
        if torch is not None and isinstance(image, torch.Tensor):
            image = image.detach().cpu()
            image = (image.float() if image.is_floating_point() else image).numpy()  # numpy has no bfloat16
        values = np.asarray(image)
    except MediaError:  # of a PdfPage, which tells of itself
        raise
    except Exception as error:  # whatever a tensor without numbers raises, or an array's own conversion
        kind = type(image).__name__
        raise MediaError(f"the image of type {kind} is no array of numbers ({message_of(error)}): {EXPECTED}") from None
    if values.ndim == 2:
        values = values[:, :, None]
    if values.ndim == 3 and values.shape[2] not in (1, 3, 4):
        values = values.transpose(1, 2, 0)
    if values.ndim != 3 or values.shape[2] not in (1, 3, 4):
        raise MediaError(f"{name} has shape {list(np.shape(image))}: {EXPECTED}")
    limits.check_pixels(values.shape[0], values.shape[1], name)
    values = _to_8_bits(values, name)
    if values.shape[2] == 4:
        alpha = values[:, :, 3:].astype(np.uint32)
        values = ((values[:, :, :3] * alpha + 255 * (255 - alpha) + 127) // 255).astype(np.uint8)
    return np.ascontiguousarray(np.broadcast_to(values, (*values.shape[:2], 3)))
