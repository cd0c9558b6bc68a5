"""Damage: the faults that a reader finds in one stream of a recording, and the warnings that name them.

`media` and `flac_frames` record faults while they decode; `audio_file` reads what libsndfile found. Each warning
continues a sentence that begins "the recording is".
"""

from __future__ import annotations

from dataclasses import dataclass, field

SHORTEST_LOSS = 0.5  # seconds below its announced length from which a recording counts as truncated
FIRST_PACKET = 0.1  # seconds from a stream's start in which its first packet ends
NAMED_GAP = 1.0  # seconds; some codecs write pauses as gaps below it
UNTIMED = "; this format stores no times, so later times may be off"


@dataclass
class Damage:
    """Faults of one stream. Times are in seconds of the recording.

    begin: of the stream, in a recording that consists of several. undecoded: times of packets that were not decoded.
    gaps: begin and length of missing audio, which became silence. is_timed: True if the format stores times.
    shortest_gap: seconds below which warnings leave out a gap.
    """

    begin: float = 0.0
    is_timed: bool = True
    shortest_gap: float = NAMED_GAP
    undecoded: list[float] = field(default_factory=list)
    gaps: list[tuple[float, float]] = field(default_factory=list)

    def add_undecoded(self, seconds: float) -> None:
        """Record a packet that was not decoded. seconds: its time in the stream."""
        self.undecoded.append(self.begin + seconds)

    def add_gap(self, seconds: float, length: float) -> None:
        """Record missing audio. seconds: its begin in the stream; a stream that begins late has no gap there.

        Writers of AVI put the first packet of such a stream at 0.
        """
        if seconds > FIRST_PACKET:
            self.gaps.append((self.begin + seconds, length))

    def warnings(self, end: float, announced: float | None, *, is_skipping: bool = False) -> list[str]:
        """Return the warnings, once the stream has been read.

        end: seconds of the stream that exist. announced: seconds that its header announces, if any. is_skipping:
        True if the reader skips damage without an error, so that a whole file may lack audio anywhere.
        """
        told = []
        if gaps := [(begin, seconds) for begin, seconds in self.gaps if seconds >= self.shortest_gap]:
            places = "1 place" if len(gaps) == 1 else f"{len(gaps)} places"
            total = sum(seconds for _, seconds in gaps)
            told.append(
                f"damaged: {total:.1f} s of audio is missing in {places}, from {gaps[0][0]:.1f} s on, now silence"
            )
        if self.undecoded:
            places = "1 place in it was" if len(self.undecoded) == 1 else f"{len(self.undecoded)} places in it were"
            doubt = "" if self.is_timed or not self._is_holed(end) else UNTIMED
            told.append(f"damaged: {places} not decoded, from {self.undecoded[0]:.1f} s on{doubt}")
        if announced is not None and announced - end >= SHORTEST_LOSS:
            if not self.is_timed and (is_skipping or self._is_holed(end)):
                lost, whole = announced - end, self.begin + announced
                doubt = UNTIMED if not self.undecoded else ""
                told.append(f"damaged: {lost:.1f} s shorter than the {whole:.1f} s that it announces{doubt}")
            else:
                told.append(truncated(self.begin + end, self.begin + announced))
        return told

    def _is_holed(self, end: float) -> bool:
        """True if a packet before the end of the stream, in seconds, was not decoded."""
        return any(place < self.begin + end - SHORTEST_LOSS for place in self.undecoded)


def truncated(end: float, announced: float) -> str:
    """Return the warning for a recording that ends early; both in seconds."""
    return f"damaged: truncated at {end:.1f} s, of {announced:.1f} s that it announces"
