"""EncodedImage: an image's bytes, with limits against small files that take long to decode, or fill the memory.

`transept.multimodal.image` reads every file through one. Pillow's decoders bound neither the number of reads, nor the
scans of a JPEG, nor the values of a TIFF's tags, each of which becomes a Python object.
"""

from __future__ import annotations

import io
import math
import re

from transept.errors import MediaError

MAX_READS = 200_000  # some microseconds each; a PNG of 30 million pixels in chunks of 8 KiB takes 50 thousand
MAX_TAG_BYTES = 16 << 20  # of a TIFF; each needs up to 18 bytes of memory
MAX_JPEG_SEGMENTS = 10_000  # a colour profile has up to 255
MAX_JPEG_SCANS = 32  # each visits every pixel again, even if it has few bytes; encoders write about ten

JPEG, TIFF = (b"\xff\xd8",), (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
MARKER = re.compile(rb"\xff[\x02-\xcf\xd9-\xfe]")  # of a JPEG's segment or scan; pixels hold no such bytes
END_OF_IMAGE, START_OF_SCAN = 0xD9, 0xDA


class EncodedImage(io.BytesIO):
    """The bytes of a file. Raises MediaError for a JPEG with too many parts, and for reads beyond the limits.

    name: for messages.
    """

    def __init__(self, data: bytes, name: str) -> None:
        if data.startswith(JPEG):
            _check_jpeg(data, name)
        super().__init__(data)
        self.name = name
        self.reads_left = MAX_READS
        self.tag_bytes_left: float = MAX_TAG_BYTES if data.startswith(TIFF) else math.inf

    def opened(self) -> None:
        """Stop counting bytes of tags: Pillow has read them, and reads pixels from now on."""
        self.tag_bytes_left = math.inf

    def read(self, size: int | None = -1, /) -> bytes:
        """Read like any file. Raises MediaError beyond the limits."""
        piece = super().read(size)
        self.reads_left -= 1
        self.tag_bytes_left -= len(piece)
        if self.reads_left < 0:
            raise MediaError(
                f"{self.name} needs more than {MAX_READS} reads, which means that it is damaged: save it again"
            )
        if self.tag_bytes_left < 0:
            raise MediaError(f"{self.name} has more than {MAX_TAG_BYTES} bytes of tags: save it without layers")
        return piece


def _check_jpeg(data: bytes, name: str) -> None:
    """Raise MediaError for a JPEG with too many segments or scans.

    Only the first image in the file counts; appended data, such as the film in a phone's photo, is ignored.
    """
    at, num_segments, num_scans = 2, 0, 0
    while (found := MARKER.search(data, at)) and data[found.end() - 1] != END_OF_IMAGE:
        num_segments += 1
        num_scans += data[found.end() - 1] == START_OF_SCAN
        if num_scans > MAX_JPEG_SCANS:
            raise MediaError(f"{name} is a JPEG of more than {MAX_JPEG_SCANS} scans: save it with fewer")
        if num_segments > MAX_JPEG_SEGMENTS:
            raise MediaError(f"{name} is a JPEG of more than {MAX_JPEG_SEGMENTS} segments: save it without comments")
        at = found.end() + int.from_bytes(data[found.end() : found.end() + 2], "big")  # a length counts itself
