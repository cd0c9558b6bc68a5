"""Images: from a file, bytes, a PIL image, an array or a tensor to RGB with one byte per channel.

Input mappers of vision families call it, and `transept.multimodal.image_processing` makes an encoder's input of the
result. Pillow decodes, and is imported with the first image. Limits apply before decoding. Nothing here opens a URL.
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
from transept.multimodal.missing_files import why_unopened
from transept.options import take_options

Pixels = npt.NDArray[np.uint8]  # RGB [height, width, 3]

MAX_BYTES = 128 << 20  # 128 MiB; a page of A4 at 500 dpi is 72 MB as an uncompressed TIFF
MAX_PIXELS = 30_000_000  # such a page has 24 million; Pillow needs 4 to 16 bytes for each during decoding
READ_BYTES = 1 << 20  # at a time
STRIP_PIXELS = 1 << 20  # converted at a time, to avoid a second copy of a large image
# Formats that Pillow decodes in bounded time and memory. Others call programs (EPS), or have no magic number (TGA).
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "TIFF", "BMP", "PPM")
PDF_MAGIC = b"%PDF"
READABLE = "pass a whole PNG, JPEG, WebP, GIF, TIFF, BMP or PPM file, or a PIL image of any other"
EXPECTED = (
    "pass uint8, uint16 or floats in 0..1, of shape [height, width], [height, width, channels] or [channels, height, "
    "width], with 1 channel (grey), 3 (RGB) or 4 (RGBA)"
)

OPENING = threading.Lock()  # while warnings are filtered, because filters are global to the process
ORIENTATION_TAG = 0x0112  # of EXIF
MAX_EXIF_CHARACTERS = 1 << 20
TILE_WIDTH, TILE_LENGTH = 322, 323  # tags of TIFF
ORIENTATIONS: dict[int, Callable[[Pixels], Pixels]] = {  # EXIF 2.32, section 4.6.4
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
    """The limits on one image; None: no limit besides Pillow's.

    Raises ParameterError for anything but a number above 0 and None.
    """

    max_image_bytes: Annotated[int | None, limit("refuse larger images", "Before they are decoded.")] = MAX_BYTES
    max_image_pixels: Annotated[
        int | None,
        limit(
            "refuse images with more pixels",
            "Height times width; Pillow itself refuses more than 179 million (``PIL.Image.MAX_IMAGE_PIXELS``).",
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
    """Decode an image to upright RGB.

    image: a path; the bytes of a file; a file or pipe opened to read bytes, from its position; a PIL image; an array or
        tensor, uint8, uint16 or floats in 0..1, [height, width], [height, width, channels] or [channels, height,
        width], with 1 channel (grey), 3 (RGB) or 4 (RGBA); if either end could be channels, the last axis is.
    limits: on its bytes and pixels, checked before decoding; None: the defaults of ImageLimits.
    Returns uint8 [height, width, 3], which may be the given array itself. The EXIF orientation is applied, transparency
    becomes white, and 16 bits per channel are rounded to 8. A file with several frames or pages gives the first one, a
    PIL image its current one.
    Raises MediaError for data that is not an image, is cut off or damaged, or is beyond a limit; MissingPackageError
    without Pillow, which arrays and tensors do not need.
    """
    limits = limits or ImageLimits()
    if _is_pil_image(image):
        return _decoded(lambda: image, image_name(image), limits)
    is_encoded = isinstance(image, str | bytes | bytearray | memoryview | os.PathLike) or hasattr(image, "read")
    if not is_encoded and (hasattr(image, "__array__") or hasattr(image, "__array_interface__")):
        return _from_array(image, limits)
    accepted = "the bytes of a file, a file opened to read bytes, a PIL image, an array or a tensor"
    name, data = read_source(image, "image", accepted, limits)
    return _from_bytes(data, name, limits)


def image_name(image: Any) -> str:
    """Return the name of an image in messages; image: what `load_image` takes."""
    if _is_pil_image(image):
        own = getattr(image, "filename", None)
        return f'the PIL image of "{own}"' if own and isinstance(own, str) else f"the PIL image in mode {image.mode}"
    return _source_name(image, "image")


def _source_name(source: Any, noun: str) -> str:
    if isinstance(source, bytes | bytearray | memoryview):
        return f"{noun} data of {memoryview(source).nbytes} bytes"
    if hasattr(source, "read"):
        own = getattr(source, "name", None)
        return (
            f'the {noun} from "{own}"' if isinstance(own, str) else f"the {noun} from an open {type(source).__name__}"
        )
    return f'{noun} file "{os.fspath(source)}"' if isinstance(source, str | os.PathLike) else f"the {noun}"


def _is_pil_image(image: Any) -> bool:
    pillow = sys.modules.get("PIL.Image")  # a PIL image exists only if it is loaded
    return pillow is not None and isinstance(image, pillow.Image)


def read_source(source: Any, noun: str, accepted: str, limits: ImageLimits) -> tuple[str, bytes]:
    """Read a path, the bytes of a file, or a file or pipe opened to read bytes, from its position.

    noun: of the content, such as ``"PDF"``. accepted: what messages suggest besides a path. Returns the name for
    messages, and the bytes. Raises MediaError for other types, and for data that cannot be read or exceeds the limits.
    """
    what = f"{'an' if noun == 'image' else 'a'} {noun}"
    if isinstance(source, bytes | bytearray | memoryview):
        try:
            name = _source_name(source, noun)
            limits.check_bytes(memoryview(source).nbytes, name)
            return name, bytes(source)
        except MediaError:
            raise
        except (BufferError, ValueError) as error:  # released
            raise MediaError(f"{noun} data in a {type(source).__name__} cannot be read: {error}; pass bytes") from None
    if isinstance(source, io.TextIOBase):
        raise MediaError(f'{what} came as a file opened to read text; open it with "rb"')
    if hasattr(source, "read"):
        name = _source_name(source, noun)
        return name, _read_file(source, name, limits)
    if not isinstance(source, str | os.PathLike):
        raise MediaError(f"{what} of type {type(source).__name__} cannot be read: pass a path, {accepted}")
    try:
        name = _source_name(source, noun)
    except TypeError as error:
        raise MediaError(f"{what} of type {type(source).__name__} names no file: {error}; pass a path") from None
    if is_url(os.fspath(source)):
        raise MediaError(f"{name} is a URL, and none is fetched: download it, and pass the path of a local file")
    try:
        with open(source, "rb") as file:
            limits.check_bytes(os.fstat(file.fileno()).st_size, name)
            return name, _read_file(file, name, limits)
    except MediaError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        raise MediaError(f"{name} cannot be opened: {why_unopened(source, error)}") from None


def _read_file(file: BinaryIO, name: str, limits: ImageLimits) -> bytes:
    """Read a file or a pipe up to the limit. Raises MediaError for a file that fails."""
    held = io.BytesIO()
    while True:
        try:
            piece = file.read(READ_BYTES)
        except Exception as error:  # a stream may raise anything: it is closed, cut off, or broken in its own way
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
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # check_pixels applies our own limit
            image = Image.open(file, formats=FORMATS)
        file.opened()
        return image

    try:
        return _decoded(opened, name, limits)
    except UnidentifiedImageError:  # whose message has a memory address
        if data.startswith(PDF_MAGIC):
            raise MediaError(
                f"{name} is a PDF: name a file that ends in .pdf to transept read, not standard input; in Python, pass "
                "the pages that transept.multimodal.pdf.pdf_pages makes of it"
            ) from None
        raise MediaError(f"{name} is not a readable image: {READABLE}") from None


def _decoded(opened: Callable[[], Any], name: str, limits: ImageLimits) -> Pixels:
    """Decode a PIL image. opened: returns it, not yet decoded. Passes UnidentifiedImageError on."""
    from PIL import Image, UnidentifiedImageError

    try:
        image = opened()
        limits.check_pixels(image.height, image.width, name)
        if tags := getattr(
            image, "tag_v2", None
        ):  # of a TIFF, whose tiles are decoded whole and may be larger than the image
            limits.check_pixels(tags.get(TILE_LENGTH, 1), tags.get(TILE_WIDTH, 1), f"a tile of {name}")
        image.load()
        limits.check_pixels(image.height, image.width, name)  # a decoder may find another size
        if image.mode == "I" and image.format != "PPM":  # PPM defines white
            low, high = image.getextrema()
            # 0..255 may also be 8 bits, which would be nearly black if they were read as 16; all 0 is black in both.
            if low < 0 or high > 0xFFFF or 0 < high <= 0xFF:
                raise MediaError(
                    f"{name} has integers of 32 bits, from {low} to {high}, and no definition of white: convert it to "
                    '8 or 16 bits, for example with image.convert("L") if 255 is white'
                )
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
    """Return the EXIF orientation; 1 (upright) if it is missing or unreadable. Pillow has applied TIFF's."""
    if any(len(image.info.get(key, "")) > MAX_EXIF_CHARACTERS for key in ("exif", "Raw profile type exif")):
        return 1  # crafted to exhaust memory
    try:
        return image.getexif().get(ORIENTATION_TAG, 1)
    except Exception:  # the image itself is intact; other viewers also show it
        return 1


def _rgb(image: Any, name: str) -> Pixels:
    """Convert a PIL image in any mode to uint8 [height, width, 3], or [height, width, 1] for grey above 8 bits."""
    from PIL import Image

    transparent = image.info.get("transparency")
    if image.mode.startswith(("I", "F")):
        values = np.asarray(image)
        if image.mode == "I":
            values = values.astype(np.uint16)  # `_decoded` has checked that they are 16 bits
        if isinstance(transparent, int):  # the transparent grey
            values = np.where(values == transparent, values.dtype.type(0xFFFF), values)
        return _to_8_bits(values, name)[:, :, None]
    if transparent is not None or image.mode in ("RGBA", "LA", "PA", "RGBa", "La"):
        if image.mode in ("RGBa", "La"):  # premultiplied
            image = image.convert(image.mode.upper())
        white = Image.new("RGBA", image.size, "white")
        return np.asarray(Image.alpha_composite(white, image.convert("RGBA")))[:, :, :3]
    return np.asarray(image.convert("RGB"))


def _to_8_bits(values: npt.NDArray[Any], name: str) -> Pixels:
    """Round uint8, uint16 or floats in 0..1, of any shape, to 256 levels. Raises MediaError for other types."""
    if values.dtype == np.uint8:
        return values
    if values.dtype.kind == "u" and values.dtype.itemsize == 2:
        return ((values.astype(np.uint32) * 255 + 0x7FFF) // 0xFFFF).astype(np.uint8)
    if values.dtype.kind != "f":
        raise MediaError(f"{name} has dtype {values.dtype}: {EXPECTED}")
    low, high = float(values.min()), float(values.max())
    if not (low >= 0 and high <= 1):  # or NaN
        raise MediaError(
            f"{name} has floats from {low:g} to {high:g}: divide them by the value of white, and {EXPECTED}"
        )
    return np.rint(values * 255).astype(np.uint8)


def _from_array(image: Any, limits: ImageLimits) -> Pixels:
    name, torch = "the image", sys.modules.get("torch")  # a tensor exists only if torch is loaded
    try:
        if torch is not None and isinstance(image, torch.Tensor):
            image = image.detach().cpu()
            image = (image.float() if image.is_floating_point() else image).numpy()  # numpy has no bfloat16
        values = np.asarray(image)
    except MediaError:  # of a PdfPage
        raise
    except Exception as error:  # an array's own conversion may raise anything
        kind = type(image).__name__
        message = f"the image of type {kind} is not an array of numbers ({message_of(error)}): {EXPECTED}"
        raise MediaError(message) from None
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
