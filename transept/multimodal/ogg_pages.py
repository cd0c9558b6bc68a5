"""Read the pages of an Ogg file (RFC 3533, section 6), and find the next whole page after damage.

`joined_files` calls `pages`. A page counts if its check sum is right, as for libogg and FFmpeg. Nothing here decodes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

MARK = b"OggS"  # begins each page
HEADER = 27  # bytes before the table of segments
MOST_SEGMENTS = 255
CHECKSUM = slice(22, 26)  # of a page; little endian
BEGINS, ENDS = 2, 4  # flags of the first page of a stream, and of the last
CONTENT_BYTES = 8  # kept of a page's content
SEARCHED_BYTES = 1 << 20  # at a time, for the next page
MOST_WASTE = 4  # bytes summed in vain, over the bytes of the file: forged marks would cost a page's sum each
REVERSED_BITS = bytes(int(f"{value:08b}"[::-1], 2) for value in range(256))


class Page(NamedTuple):
    """A whole page. begin, end: its bytes in the file. content: how its first packet begins.

    is_after_damage: True if there are bytes between it and the page before it.
    """

    begin: int
    end: int
    flags: int
    stream: bytes
    number: int
    content: bytes
    is_after_damage: bool


def pages(file: BinaryIO, size: int) -> Iterator[Page]:
    """Yield the whole pages of a file of `size` bytes, in their order."""
    position, waste, is_after_damage = 0, 0, False
    while position < size and waste <= MOST_WASTE * size:
        file.seek(position)
        data = file.read(HEADER + MOST_SEGMENTS)
        length = _page_length(data)
        if 0 < length <= size - position:
            data += file.read(max(0, length - len(data)))
            if _is_sound(data[:length]):
                content = HEADER + data[26]
                yield Page(
                    position,
                    position + length,
                    data[5],
                    data[14:18],
                    int.from_bytes(data[18:22], "little"),
                    data[content : min(length, content + CONTENT_BYTES)],
                    is_after_damage,
                )
                position, is_after_damage = position + length, False
                continue
            waste += length
        position, is_after_damage = _next_mark(file, position + 1, size), True


def _page_length(head: bytes) -> int:
    """Return the bytes of the page that begins here, as its header says; 0 if none does."""
    if len(head) < HEADER or head[:4] != MARK or len(head) < HEADER + head[26]:
        return 0
    return HEADER + head[26] + sum(head[HEADER : HEADER + head[26]])


def _is_sound(page: bytes) -> bool:
    """True if a page's check sum is right: CRC-32 of polynomial 0x04C11DB7, from 0, most significant bit first.

    zlib's is the same one with the bits of each byte in the other order.
    """
    data = page[: CHECKSUM.start] + bytes(4) + page[CHECKSUM.stop :]
    reversed_sum = zlib.crc32(data.translate(REVERSED_BITS), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return reversed_sum.to_bytes(4, "little").translate(REVERSED_BITS)[::-1] == page[CHECKSUM]


def _next_mark(file: BinaryIO, begin: int, size: int) -> int:
    """Return the next position of MARK from `begin` on; `size` without one."""
    while begin < size:
        file.seek(begin)
        data = file.read(SEARCHED_BYTES)
        place = data.find(MARK)
        if place >= 0:
            return begin + place
        if len(data) < SEARCHED_BYTES:
            break
        begin += len(data) - len(MARK) + 1
    return size
