"""Files of images for tests: as Pillow writes them, and PNGs put together by hand, whatever they announce."""

import functools
import io
import struct
import zlib

import numpy as np
from PIL import Image

HEIGHT, WIDTH = 61, 97


@functools.cache
def picture(height: int = HEIGHT, width: int = WIDTH, channels: int = 3) -> np.ndarray:
    """Slopes, an edge and a little noise, uint8 [height, width, channels]."""
    rows, columns, channel = np.indices((height, width, channels))
    noise = np.random.default_rng(0).integers(0, 20, (height, width, channels))
    values = rows * 255 // max(height, 2) // (1 + channel) + columns * 200 // max(width, 2) + noise
    values[: height // 3, : width // 3] = 255
    made = (values % 256).astype(np.uint8)
    made.flags.writeable = False  # it is everybody's
    return made


def encoded(image: Image.Image | np.ndarray, file_format: str, **options) -> bytes:
    file = io.BytesIO()
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(file, file_format, **options)
    return file.getvalue()


def png(
    size: tuple[int, int], pixels: bytes, *, depth: int = 8, colour: int = 2, chunks: dict[bytes, bytes] | None = None
) -> bytes:
    """size: width, height. pixels: rows, each with its filter byte in front. colour: the type of PNG, 2 for RGB."""
    header = struct.pack(">IIBBBBB", *size, depth, colour, 0, 0, 0)
    parts = {b"IHDR": header, **(chunks or {}), b"IDAT": zlib.compress(pixels), b"IEND": b""}
    file = b"\x89PNG\r\n\x1a\n"
    for name, data in parts.items():
        file += struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    return file


def png_16(values: np.ndarray, colour: int, chunks: dict[bytes, bytes] | None = None) -> bytes:
    """values: uint16 [height, width, channels]."""
    height, width, _ = values.shape
    rows = values.astype(">u2").reshape(height, -1).view(np.uint8)
    filtered = np.concatenate([np.zeros((height, 1), np.uint8), rows], axis=1)
    return png((width, height), filtered.tobytes(), depth=16, colour=colour, chunks=chunks)
