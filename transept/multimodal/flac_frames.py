"""Find and decode the frames of a damaged FLAC file, each at the time that its header has for it.

Each frame's header holds the number of the frame or of its first sample (RFC 9639, section 9.1). libsndfile stops at
damage, and FFmpeg joins the frames on both sides of it, which moves later audio. `audio_file` calls `is_whole` for each
FLAC file that libsndfile decoded, and `decoded` for damaged ones. Nothing here resamples.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

from transept.multimodal.damage import Damage
from transept.multimodal.presentation import Placed

STREAMINFO_BEGIN, STREAMINFO_END = 8, 42  # bytes: after fLaC and the block's header
SEARCHED_BYTES = 1 << 22  # at a time
LONGEST_HEADER = 16  # bytes, its CRC included
LONGEST_FRAME = 1 << 22  # bytes; 65,535 samples of 8 channels at 32 bits are 2 MB
BLOCK_SIZES = {1: 192, **{code: 576 << code - 2 for code in range(2, 6)}, **{code: 1 << code for code in range(8, 16)}}
SIZE_BYTES = {6: 1, 7: 2}  # code of a block size -> bytes of the header that hold the size less one
RATE_BYTES = {12: 1, 13: 2, 14: 2}  # code of a sample rate -> bytes of the header that hold the rate


def _one_of(values: list[int]) -> bytes:
    return b"[" + b"".join(re.escape(bytes([value])) for value in values) + b"]"


# Sync code and strategy; codes of block size and sample rate; of channels and sample size, and a zero bit.
HEADER = re.compile(
    b"(?=\xff[\xf8\xf9]"
    + _one_of([value for value in range(256) if value >> 4 and value & 15 != 15])
    + _one_of([value for value in range(256) if value >> 4 <= 10 and value >> 1 & 7 != 3 and not value & 1])
    + b")",
    re.DOTALL,
)
CRC8 = list(range(256))  # table of the CRC-8 with polynomial 0x07
for _ in range(8):
    CRC8 = [(value << 1 ^ (0x07 if value & 0x80 else 0)) & 0xFF for value in CRC8]


class StreamInfo(NamedTuple):
    """Fields of the STREAMINFO block.

    frame_samples: of every frame but the last, 0 if they vary. total: of the file, 0 if unknown.
    """

    frame_samples: int
    rate: int  # Hz
    channels: int
    total: int
    block: bytes

    @classmethod
    def of(cls, file: BinaryIO) -> StreamInfo | None:
        """Read the block of a FLAC file; None without a valid one."""
        file.seek(STREAMINFO_BEGIN)
        block = file.read(STREAMINFO_END - STREAMINFO_BEGIN)
        if len(block) < STREAMINFO_END - STREAMINFO_BEGIN:
            return None
        fewest, most = int.from_bytes(block[:2], "big"), int.from_bytes(block[2:4], "big")
        packed = int.from_bytes(block[10:18], "big")  # rate: 20 bits, channels - 1: 3, bits - 1: 5, samples: 36
        rate = packed >> 44
        if not rate or not most:
            return None
        return cls(most if fewest == most else 0, rate, (packed >> 41 & 7) + 1, packed & (1 << 36) - 1, block)


class Frame(NamedTuple):
    """position: in the file, in bytes. first: number of its first sample. end: number of the sample after its last."""

    position: int
    first: int
    end: int


def is_whole(file: BinaryIO) -> bool:
    """True if a file's frames follow each other without a gap, up to the announced number of samples."""
    info = StreamInfo.of(file)
    if info is None:
        return True  # no frame can be placed
    reached = None
    for frame in _frames(file, info):
        if reached is not None and frame.first != reached:
            return False
        if reached is None and info.total and frame.first:
            return False
        reached = frame.end
    return reached is not None and reached >= info.total


def decoded(file: BinaryIO, info: StreamInfo, damage: Damage, check: Callable[[float], None]) -> Iterator[Placed]:
    """Yield the frames of a file whose check sums are right, at their times.

    check: called with the recording's length, in seconds, before silence is inserted; raises if it is too long.
    """
    import av

    codec: Any = av.CodecContext.create("flac", "r")
    codec.extradata, codec.options = info.block, {"err_detect": "crccheck+explode"}
    reached = 0 if info.total else None
    frames = _frames(file, info)
    frame = next(frames, None)
    while frame is not None:
        following = next(frames, None)
        reached = frame.first if reached is None else reached
        length = LONGEST_FRAME if following is None else min(LONGEST_FRAME, following.position - frame.position)
        file.seek(frame.position)
        try:
            sounds = codec.decode(av.Packet(file.read(length)))
        except av.FFmpegError:
            sounds = []
            damage.add_undecoded(frame.first / info.rate)
        for sound in sounds:
            silence = max(0, frame.first - reached)
            check((reached + silence + sound.samples) / info.rate)
            yield Placed(sound, silence, reached / info.rate)
            reached += silence + sound.samples
        frame = following


def _frames(file: BinaryIO, info: StreamInfo) -> Iterator[Frame]:
    """Yield the frames in their order.

    Bytes that merely look like a header are rare, since a header ends with a CRC, and their number is random. So a
    frame counts if it follows the frame before it, or if the next one follows it.
    """
    expected = 0 if info.total else None
    pending = None
    for frame in _candidates(file, info):
        if frame.first == expected:
            yield frame
            expected, pending = frame.end, None
        elif pending is not None and frame.first == pending.end and pending.first >= (expected or 0):
            yield from (pending, frame)
            expected, pending = frame.end, None
        else:
            pending = frame
    if pending is not None and pending.end == info.total and pending.first >= (expected or 0):
        yield pending


def _candidates(file: BinaryIO, info: StreamInfo) -> Iterator[Frame]:
    """Yield all places that look like the header of a frame."""
    file.seek(STREAMINFO_END)
    begin, kept = STREAMINFO_END, b""
    while piece := file.read(SEARCHED_BYTES):
        data = kept + piece
        is_last = len(piece) < SEARCHED_BYTES
        searched = len(data) if is_last else len(data) - LONGEST_HEADER
        for match in HEADER.finditer(data):
            if match.start() >= searched:
                break
            frame = _parsed(data, match.start(), begin, info)
            if frame is not None:
                yield frame
        begin, kept = begin + searched, data[searched:]


def _parsed(data: bytes, at: int, begin: int, info: StreamInfo) -> Frame | None:
    """Read the header at a place of data, which is at byte `begin` of the file; None if it is not one."""
    head = data[at : at + LONGEST_HEADER]
    size_code, rate_code = head[2] >> 4, head[2] & 15
    ones = 8 - (head[4] ^ 0xFF).bit_length() if len(head) > 4 else 1  # leading ones: bytes of the number
    length = max(1, ones)
    number_end = 4 + length
    size_end = number_end + SIZE_BYTES.get(size_code, 0)
    end = size_end + RATE_BYTES.get(rate_code, 0)
    if ones == 1 or ones == 8 or end >= len(head):
        return None
    crc = 0
    for byte in head[:end]:
        crc = CRC8[crc ^ byte]
    if crc != head[end]:
        return None
    number = head[4] & 0x7F >> ones
    for byte in head[5:number_end]:
        number = number << 6 | byte & 0x3F
    samples = BLOCK_SIZES.get(size_code) or int.from_bytes(head[number_end:size_end], "big") + 1
    is_fixed = head[1] == 0xF8
    if is_fixed and not info.frame_samples:
        return None
    first = number * info.frame_samples if is_fixed else number
    return Frame(begin + at, first, first + samples)
