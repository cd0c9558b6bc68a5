"""The index of an AVI file: which chunks of a track it has, so that missing and empty ones become silence.

AVI stores no times. A chunk lasts what its track's header says, also one without content, which writers put where
sound begins late or pauses. FFmpeg skips those; `media` asks here how long the skipped ones before a packet last.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

HEAD_BYTES = 1 << 16
SHORTEST_SKIP = 0.25  # seconds below which skipped chunks are parts of packets that begin in the chunk before
ENTRY = np.dtype([("name", "S4"), ("flags", "<u4"), ("offset", "<u4"), ("size", "<u4")])


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
    """Return what a stream's header (strh) says that a byte and a chunk last, one of them 0; None without a header."""
    place = -1
    for _ in range(stream + 1):
        place = head.find(b"strh", place + 1)
        if place < 0:
            return None
    fields = head[place + 28 : place + 56]  # after the type, the handler, flags, priorities and the initial frames
    if len(fields) < 28:
        return None
    scale, rate, _, _, _, _, sample_bytes = struct.unpack("<7I", fields)
    if not scale or not rate:
        return None
    return (scale / rate / sample_bytes, 0.0) if sample_bytes else (0.0, scale / rate)
