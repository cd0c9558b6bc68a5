"""The length of a track that a file's header announces: damaged and truncated files are shorter.

`media` compares it with the decoded length. Where a header has none, FFmpeg estimates a length from the bit rate, or
from the last packet; such a length announces nothing.
"""

from __future__ import annotations

import struct
from typing import Any

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

    In joined files it is that of the first. rate: in Hz.
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
    place = -1
    for _ in range(index + 1):
        place = head.find(b"strh", place + 1)
        if place < 0:
            return None
    fields = head[place + 28 : place + 44]  # after the type, the handler, flags, priorities and the initial frames
    if len(fields) < 16:
        return None
    scale, rate, _, count = struct.unpack("<4I", fields)
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
