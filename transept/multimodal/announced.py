"""The length and the size that a container's header announces: damaged and truncated files are shorter.

`media` compares the length with the decoded one. Some formats announce none: FFmpeg then estimates it from the bit rate
or the last packet, which does not count. `media` also warns of files that are smaller than announced, and `audio_file`
adds `hint` to the error for a file that cannot be decoded. Nothing here decodes.

AVI stores no times. A chunk lasts as long as its track's header says, even without content, which writers use if audio
begins late or pauses. FFmpeg skips chunks without content; `media` asks AviIndex how long those before a packet last.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from transept.multimodal.presentation import format_names

HEAD_BYTES = 1 << 16
MP3_HEADERS = (b"Xing", b"Info", b"VBRI")
LAME_TAG, LAME_WRITERS = 120, (b"LAME", b"Lavf", b"Lavc")  # bytes from the header to the tag; how the tag begins
# Format -> bytes that its header holds if it announces a length.
ANNOUNCEMENTS: dict[str, tuple[bytes, ...]] = {
    "matroska": (b"\x44\x89\x84", b"\x44\x89\x88"),  # the element Duration, of 4 or 8 bytes
    "flv": (b"duration",),
    "flac": (b"fLaC",),
    "tta": (b"TTA1",),
}
ASF_PROPERTIES = bytes.fromhex("a1dcab8c47a9cf118ee400c00c205365")  # the File Properties Object of ASF, section 3.2
UNKNOWN_COUNT = 0xFFFF_FFFF  # samples, in a header that was written before them
LONGEST = 1e7  # seconds, about 116 days; a header that announces more is wrong
MP4_BRANDS = (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip", b"pnot")  # types of a file's first box
MOST_BOXES = 10_000  # walked; a file in fragments has one or two for each
CAF_HEADER = 8  # bytes before the first chunk
SHORTEST_SKIP = 0.25  # seconds below which skipped chunks are parts of packets that begin in the chunk before
ENTRY = np.dtype([("name", "S4"), ("flags", "<u4"), ("offset", "<u4"), ("size", "<u4")])
UNKNOWN_RIFF_SIZES = (0, 0xFFFF_FFFF)  # of files that were written to a pipe


def announced_seconds(container: Any, stream: Any) -> float | None:
    """Return the length in a file's header; None without one."""
    names = format_names(container)
    if "mov" in names:
        return None if stream.duration is None else float(stream.duration * stream.time_base)
    if container.duration is None or container.file is None:
        return None
    file = container.file.file
    place = file.tell()
    file.seek(0)
    head = file.read(HEAD_BYTES)
    file.seek(place)
    if "mp3" in names:
        return _mp3_seconds(head, stream.codec_context.sample_rate)
    if "avi" in names:
        return _avi_seconds(head, stream.index)
    if "asf" in names:
        return _asf_seconds(head)
    if "wv" in names:
        return _wavpack_seconds(head, stream.codec_context.sample_rate)
    if not any(mark in head for name in names for mark in ANNOUNCEMENTS.get(name, ())):
        return None
    begin = max(0, container.start_time or 0) if "matroska" in names else 0  # Matroska counts from 0
    return float(container.duration - begin) / 1_000_000


def _mp3_seconds(head: bytes, rate: int) -> float | None:
    """Return the length in the header that LAME and other encoders write as the first frame; None without one.

    In joined files, this is the length of the first file. rate: in Hz.
    """
    places = [head.find(mark) for mark in MP3_HEADERS]
    found = min((place for place in places if place >= 0), default=None)
    if found is None or not rate:
        return None
    if head[found : found + 4] == b"VBRI":
        count = head[found + 14 : found + 18]
    elif int.from_bytes(head[found + 4 : found + 8], "big") & 1:  # the count is there
        count = head[found + 8 : found + 12]
    else:
        return None
    frame_samples = 1152 if rate >= 32_000 else 576  # MPEG-1, MPEG-2 (ISO/IEC 11172-3 and 13818-3, layer III)
    padding = 0
    if head[found + LAME_TAG : found + LAME_TAG + 4] in LAME_WRITERS:  # samples that the encoder added, 12 bits each
        packed = int.from_bytes(head[found + LAME_TAG + 21 : found + LAME_TAG + 24], "big")
        padding = (packed >> 12) + (packed & 0xFFF)
    return max(0, int.from_bytes(count, "big") * frame_samples - padding) / rate


def _avi_seconds(head: bytes, index: int) -> float | None:
    """Return the length in the stream header (strh) of a stream of an AVI file. index: of the stream."""
    fields = _stream_header(head, index)
    if len(fields) < 28:
        return None
    scale, rate, _, count = struct.unpack("<4I", fields[:16])
    return _plausible(count * scale / rate) if rate and count != UNKNOWN_COUNT else None


def _asf_seconds(head: bytes) -> float | None:
    """Return the length in the header of an ASF file, such as WMA; FFmpeg changes it in one that is cut."""
    place = head.find(ASF_PROPERTIES)
    fields = head[place + 64 : place + 92]  # after the object's type, size, and the file's number, size, date, packets
    if place < 0 or len(fields) < 28:
        return None
    ticks, _, preroll, flags = struct.unpack("<3QI", fields)  # ticks of 100 ns; they include the preroll, in ms
    is_live = flags & 1  # then the length is not valid
    return None if is_live else _plausible(ticks / 10_000_000 - preroll / 1000)


def _wavpack_seconds(head: bytes, rate: int) -> float | None:
    """Return the length in the first block of a WavPack file. rate: in Hz."""
    if head[:4] != b"wvpk" or len(head) < 16 or not rate:
        return None
    count = int.from_bytes(head[12:16], "little")
    return None if count == UNKNOWN_COUNT else _plausible(count / rate)


def _plausible(seconds: float) -> float | None:
    return seconds if 0 < seconds < LONGEST else None


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


class AviIndex:
    """Begins of one track's chunks in a file, and how long each lasts."""

    def __init__(self, places: npt.NDArray[np.int64], seconds: npt.NDArray[np.float64]) -> None:
        """places: bytes of the file, in order. seconds: of each chunk."""
        self._places, self._ends = places, np.cumsum(seconds)
        self._reached = -1  # number of the chunk of the last packet

    def skipped(self, place: int) -> float:
        """Return the seconds of chunks between the last packet and the one at this byte; 0 for less than a moment."""
        number = int(np.searchsorted(self._places, place, side="right")) - 1
        if number <= self._reached:
            return 0.0
        before = float(self._ends[self._reached]) if self._reached >= 0 else 0.0
        begin = float(self._ends[number - 1]) if number else 0.0
        self._reached = number
        return begin - before if begin - before >= SHORTEST_SKIP else 0.0

    @classmethod
    def of(cls, file: BinaryIO, stream: int) -> AviIndex | None:
        """Return the index (idx1) of a stream's chunks; None without one that fits the file, which stays where it is.

        stream: number of the stream, of any kind.
        """
        position = file.tell()
        try:
            file.seek(0)
            head = file.read(HEAD_BYTES)
            return cls._read(file, head, stream)
        finally:
            file.seek(position)

    @classmethod
    def _read(cls, file: BinaryIO, head: bytes, stream: int) -> AviIndex | None:
        seconds, movie = _seconds_per_byte_and_chunk(head, stream), head.find(b"movi")
        if seconds is None or movie < 8:
            return None
        size = int.from_bytes(head[movie - 4 : movie], "little")
        file.seek(movie + size + size % 2)
        header = file.read(8)
        if header[:4] != b"idx1":
            return None
        content = file.read(int.from_bytes(header[4:], "little"))
        entries = np.frombuffer(content[: len(content) // ENTRY.itemsize * ENTRY.itemsize], ENTRY)
        own = entries[np.char.startswith(entries["name"], f"{stream:02d}".encode())]
        if not len(own):
            return None
        places = own["offset"].astype(np.int64) + (movie if entries["offset"][0] < movie else 0)
        file.seek(int(places[0]))
        if file.read(4) != own["name"][0] or (np.diff(places) < 0).any():
            return None
        per_byte, per_chunk = seconds
        return cls(places, own["size"] * per_byte + per_chunk)


def _seconds_per_byte_and_chunk(head: bytes, stream: int) -> tuple[float, float] | None:
    """Return the seconds of a byte and of a chunk in a stream's header (strh), one of them 0; None without a header."""
    fields = _stream_header(head, stream)
    if len(fields) < 28:
        return None
    scale, rate, _, _, _, _, sample_bytes = struct.unpack("<7I", fields)
    if not scale or not rate:
        return None
    return (scale / rate / sample_bytes, 0.0) if sample_bytes else (0.0, scale / rate)


def _stream_header(head: bytes, index: int) -> bytes:
    """Return the times and sizes in the stream header (strh) of a stream of an AVI file; empty without one."""
    place = -1
    for _ in range(index + 1):
        place = head.find(b"strh", place + 1)
        if place < 0:
            return b""
    return head[place + 28 : place + 56]  # after the type, the handler, flags, priorities and the initial frames
