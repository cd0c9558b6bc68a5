"""Split a file that consists of several: chained Ogg streams, and WAV, FLAC and MP4 files that were concatenated.

libsndfile and FFmpeg silently stop after the first of them, so `audio_file` decodes each separately. MPEG audio does
not need this, because its frames are independent of a file header.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, BinaryIO, NamedTuple

SEARCHED_BYTES = 1 << 22  # read from a FLAC file at a time
FLAC_BEGIN = (b"fLaC\x00\x00\x00\x22", b"fLaC\x80\x00\x00\x22")  # mark, then the header of the first block
ID3_HEADER = 10  # bytes of an ID3v2 tag before its frames; the last four are its size
RIFF_HEADER = 12  # bytes: RIFF, size, WAVE
OGG_TRACKS = (b"\x01vorbis", b"OpusHead", b"\x7fFLAC", b"Speex", b"\x80theora")  # how tracks' first packets begin
MARK_BYTES = 1 << 20  # read at a time to find the next Ogg page
MARK = b"OggS"  # the start of each page
OGG_HEADER = 27  # bytes before the table of segments
MOST_SEGMENTS = 255
CHECKSUM = slice(22, 26)  # of a page; little endian
BEGINS, ENDS = 2, 4  # flags of the first page of a stream, and of the last
CONTENT_BYTES = 8  # of a page's content that are kept
MOST_WASTE = 4  # limit of bytes with a wrong check sum, in file sizes; a forged file has many
REVERSED_BITS = bytes(int(f"{value:08b}"[::-1], 2) for value in range(256))


@dataclass(frozen=True)
class Part:
    """One file of several. begin, end: its bytes.

    is_plain: True if libsndfile decodes all of it at the right times: it has one track, and no page is lost.
    is_cut: True if an Ogg file does not end with a whole page.
    """

    begin: int
    end: int
    is_plain: bool = True
    is_cut: bool = False


def parts_of(file: BinaryIO) -> list[Part]:
    """Return the files that a file consists of, usually one. The file is left at its start."""
    size, begin = file.seek(0, io.SEEK_END), _tag_end(file)
    file.seek(begin)
    head = file.read(RIFF_HEADER)
    if head[:4] != b"fLaC" and begin:
        head = b""  # MPEG audio, whose tags FFmpeg skips
    if head[:4] == b"OggS":
        parts = _ogg_links(file, size)
    elif head[:4] == b"fLaC":
        parts = _between(_flac_begins(file), size, begin)
    elif head[:4] == b"RIFF" and head[8:] == b"WAVE":
        parts = _between(_wav_begins(file, size), size)
    elif head[4:8] == b"ftyp":
        parts = _between(_mp4_begins(file, size), size)
    else:
        parts = [Part(0, size)]
    file.seek(0)
    return parts


def _tag_end(file: BinaryIO) -> int:
    """Return where the ID3v2 tag at the start of a file ends; 0 without one. Some programs tag FLAC files so."""
    file.seek(0)
    head = file.read(ID3_HEADER)
    if head[:3] != b"ID3" or len(head) < ID3_HEADER:
        return 0
    size = 0
    for byte in head[6:]:  # seven bits each
        size = size << 7 | byte & 0x7F
    return ID3_HEADER + size


def _between(begins: Iterator[int], size: int, first: int = 0) -> list[Part]:
    bounds = [*sorted({first, *begins}), size]
    return [Part(begin, end) for begin, end in pairwise(bounds)]


def _wav_begins(file: BinaryIO, size: int) -> Iterator[int]:
    """Positions of RIFF chunks that directly follow each other."""
    begin = 0
    while begin + RIFF_HEADER <= size:
        file.seek(begin)
        head = file.read(RIFF_HEADER)
        if head[:4] != b"RIFF" or head[8:] != b"WAVE":
            return
        yield begin
        length = int.from_bytes(head[4:8], "little")
        begin += 8 + length + length % 2


def _mp4_begins(file: BinaryIO, size: int) -> Iterator[int]:
    """Positions of boxes that begin an MP4 file, after the previous file's moov box (ISO/IEC 14496-12, section 4)."""
    begin, has_tracks = 0, False
    while begin + 8 <= size:
        file.seek(begin)
        head = file.read(16)
        length, kind = int.from_bytes(head[:4], "big"), head[4:8]
        if kind == b"ftyp" and has_tracks:
            yield begin
        has_tracks = kind == b"moov" or (has_tracks and kind != b"ftyp")
        length = int.from_bytes(head[8:], "big") if length == 1 else length
        if length < 8:
            return
        begin += length


def _flac_begins(file: BinaryIO) -> Iterator[int]:
    """Positions of FLAC files, found by their first eight bytes: encoded audio holds these once in 2 ** 63 bytes."""
    file.seek(0)
    position, kept = 0, b""
    while piece := file.read(SEARCHED_BYTES):
        searched = kept + piece
        found = {position - len(kept) + place for mark in FLAC_BEGIN for place in _places(searched, mark)}
        yield from sorted(found)
        position, kept = position + len(piece), searched[-len(FLAC_BEGIN[0]) + 1 :]


def _places(data: bytes, mark: bytes) -> Iterator[int]:
    place = data.find(mark)
    while place >= 0:
        yield place
        place = data.find(mark, place + 1)


def _ogg_links(file: BinaryIO, size: int) -> list[Part]:
    """The links of a chain (RFC 3533, section 4): each begins with the first pages of new streams."""
    links: list[Part] = []
    link_begin = end = tracks = 0
    in_head, is_plain, has_ended = True, True, False
    numbers: dict[bytes, int] = {}  # stream -> number of its next page
    for page in pages(file, size):
        if page.flags & BEGINS:
            if not in_head:
                links.append(Part(link_begin, page.begin, is_plain=is_plain and tracks < 2))
                link_begin, tracks, is_plain, numbers = page.begin, 0, True, {}
            in_head = True
            tracks += page.content.startswith(OGG_TRACKS)
        else:
            in_head = False
            is_plain = is_plain and not page.is_after_damage and numbers.get(page.stream, page.number) == page.number
        numbers[page.stream] = page.number + 1
        end, has_ended = page.end, bool(page.flags & ENDS)
    file.seek(end)
    rest = file.read(len(MARK))  # other programs may append tags to a stream that has ended
    is_cut = bool(rest) and (not has_ended or rest == MARK[: len(rest)])
    return [*links, Part(link_begin, size, is_plain=is_plain and tracks < 2, is_cut=is_cut)]


class Window(io.RawIOBase):
    """A part of a file, as a readable file."""

    def __init__(self, file: BinaryIO, part: Part) -> None:
        self._file, self._begin, self._end = file, part.begin, part.end
        self._position = 0

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """The position within the part."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Seek within the part. Raises ValueError for a position before its start."""
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._end - self._begin}[whence]
        if origin + offset < 0:
            raise ValueError(f"negative seek position {origin + offset}")
        self._position = origin + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer, and return the number of bytes."""
        left = max(0, self._end - self._begin - self._position)
        self._file.seek(self._begin + self._position)
        data = self._file.read(min(left, memoryview(buffer).nbytes))
        memoryview(buffer).cast("B")[: len(data)] = data
        self._position += len(data)
        return len(data)


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
        data = file.read(OGG_HEADER + MOST_SEGMENTS)
        length = _page_length(data)
        if 0 < length <= size - position:
            data += file.read(max(0, length - len(data)))
            if _is_sound(data[:length]):
                content = OGG_HEADER + data[26]
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
    if len(head) < OGG_HEADER or head[:4] != MARK or len(head) < OGG_HEADER + head[26]:
        return 0
    return OGG_HEADER + head[26] + sum(head[OGG_HEADER : OGG_HEADER + head[26]])


def _is_sound(page: bytes) -> bool:
    """True if a page's check sum is right: CRC-32 of polynomial 0x04C11DB7, from 0, most significant bit first.

    zlib computes the same CRC with the bits of each byte reversed.
    """
    data = page[: CHECKSUM.start] + bytes(4) + page[CHECKSUM.stop :]
    reversed_sum = zlib.crc32(data.translate(REVERSED_BITS), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return reversed_sum.to_bytes(4, "little").translate(REVERSED_BITS)[::-1] == page[CHECKSUM]


def _next_mark(file: BinaryIO, begin: int, size: int) -> int:
    """Return the next position of MARK from `begin` on; `size` without one."""
    while begin < size:
        file.seek(begin)
        data = file.read(MARK_BYTES)
        place = data.find(MARK)
        if place >= 0:
            return begin + place
        if len(data) < MARK_BYTES:
            break
        begin += len(data) - len(MARK) + 1
    return size
