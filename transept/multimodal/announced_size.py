"""Compare the bytes of a container with the size that its header announces: truncated files explain themselves.

`audio_file` adds `hint` to the error for a file that cannot be decoded; `media` warns of files that end early and
announce no duration. Nothing here decodes.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import BinaryIO

MP4_BRANDS = (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip", b"pnot")  # types of a file's first box
MOST_BOXES = 10_000  # walked; a file in fragments has one or two for each
CAF_HEADER = 8  # bytes before the first chunk
UNKNOWN_RIFF_SIZES = (0, 0xFFFF_FFFF)  # of files that were written to a pipe


def announced_bytes(file: BinaryIO) -> int | None:
    """Return the size that a header announces, in bytes; None for formats that announce none.

    Reads the boxes of MP4 and QuickTime, the chunks of CAF, and the header of AVI. The position of the file is kept.
    """
    position = file.tell()
    try:
        file.seek(0)
        head = file.read(12)
        if head[:4] == b"RIFF" and head[8:] == b"AVI ":
            size = int.from_bytes(head[4:8], "little")
            return None if size in UNKNOWN_RIFF_SIZES else 8 + size
        if head[:4] == b"caff":
            return _last_end(_boxes(file, CAF_HEADER, is_caf=True))
        if head[4:8] in MP4_BRANDS:
            return _last_end(_boxes(file, 0, is_caf=False))
        return None
    finally:
        file.seek(position)


def hint(file: BinaryIO) -> str:
    """Return a sentence that says why a truncated file cannot be decoded, with a space before it; else nothing."""
    size, announced = file.seek(0, io.SEEK_END), announced_bytes(file)
    if announced is not None and announced > size:
        return (
            f" It ends after {size} of the {announced} bytes that it announces, as an incomplete download does: copy "
            "it again, whole."
        )
    file.seek(0)
    is_mp4 = file.read(8)[4:] in MP4_BRANDS
    if is_mp4 and not any(kind == b"moov" for kind, _ in _boxes(file, 0, is_caf=False)):
        return (
            " It has no index (moov), which programs write last: its recording or download was interrupted. Copy it "
            "again, whole."
        )
    return ""


def _last_end(boxes: Iterator[tuple[bytes, int]]) -> int | None:
    return max((end for _, end in boxes), default=None)


def _boxes(file: BinaryIO, begin: int, *, is_caf: bool) -> Iterator[tuple[bytes, int]]:
    """Yield the type and the end of each outermost box, or chunk of a CAF file, up to one that ends after the file.

    A box whose size is not known extends to the end of the file.
    """
    size = file.seek(0, io.SEEK_END)
    for _ in range(MOST_BOXES):
        file.seek(begin)
        head = file.read(16)
        if len(head) < 8:
            return
        if is_caf:
            kind, length = head[:4], int.from_bytes(head[4:12], "big", signed=True) + 12
            length = length if length >= 12 else size - begin
        else:
            kind, length = head[4:8], int.from_bytes(head[:4], "big")
            if length == 1:  # a size of 64 bits follows the type
                length = int.from_bytes(head[8:16], "big")
            length = length if length >= 8 else size - begin
        if not kind.isalnum() and not kind.strip().isalnum():  # not a type: the file is damaged here
            return
        yield kind, begin + length
        begin += length
        if begin >= size:
            return
