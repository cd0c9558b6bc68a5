"""Diarization: the turns of a recording's speakers. The hook `diarize` calls `find_turns`.

waveform ─▶ active voices of each chunk ─▶ pieces of one voice ─▶ embeddings ─▶ clusters, one a speaker ─▶ turns
            (segmentation)                 (pieces)               (embedding)   (clustering)              (pieces)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import soxr

from transept.multimodal.filter_banks import FRAMES_PER_SECOND, filter_banks
from transept_speakers.clustering import cluster
from transept_speakers.embedding import MELS, embed
from transept_speakers.pieces import Piece, cut_into_pieces, join_turns
from transept_speakers.segmentation import RATE, segment

STEP_FRAMES = 10  # the lengths of embedded stretches are multiples of it, so that many share a batch
FEWEST_FRAMES, MOST_FRAMES = 30, 150  # of a stretch; longer ones take more time and do not improve the result


def find_turns(
    waveform: npt.NDArray[np.float32], sample_rate: int, min_speakers: int | None, max_speakers: int | None
) -> list[tuple[float, float, str]]:
    """Return (start, end, speaker) in order of time. Arguments: see Transept's hook `diarize`."""
    samples = waveform if sample_rate == RATE else soxr.resample(waveform, sample_rate, RATE)
    chunks = segment(samples)
    pieces = cut_into_pieces(chunks)
    if not pieces:
        return []
    durations = np.array([piece.end - piece.start for piece in pieces])
    speakers = cluster(embed(_stretches(samples, pieces)), durations, min_speakers or 1, max_speakers)
    return join_turns(chunks, pieces, speakers)


def _stretches(samples: npt.NDArray[np.float32], pieces: Sequence[Piece]) -> list[npt.NDArray[np.float32]]:
    """Return filter banks of the middle of each piece, [MELS, frames]. Short pieces get the audio around them."""
    least = (FEWEST_FRAMES + 3) * RATE // FRAMES_PER_SECOND
    mels = filter_banks(np.pad(samples, (0, max(0, least - len(samples)))), MELS)
    stretches = []
    for piece in pieces:
        frames = int((piece.end - piece.start) * FRAMES_PER_SECOND) // STEP_FRAMES * STEP_FRAMES
        length = min(max(frames, FEWEST_FRAMES), MOST_FRAMES, mels.shape[1])
        first = round((piece.start + piece.end) / 2 * FRAMES_PER_SECOND - length / 2)
        first = min(max(first, 0), mels.shape[1] - length)
        stretches.append(mels[:, first : first + length])
    return stretches
