"""Speaker diarization: stretches of speech, an embedding of each, clusters of embeddings, turns.

waveform ─▶ spans of speech (silero-vad) ─▶ stretches of 1.6 s ─▶ embeddings ─▶ clusters, one a voice ─▶ turns
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

import librosa
import numpy as np
import numpy.typing as npt
import torch
from scipy.ndimage import median_filter
from sklearn.cluster import AgglomerativeClustering

from transept_voices.encoder import FRAMES, HOP, RATE, embeddings, spectrogram

STEP = 40  # frames between the begins of stretches; 0.4 s
SHORTEST_SURE = 80  # frames; a shorter stretch does not make a new voice
FEWEST_STRETCHES = 4  # of a voice: 1.6 s and three steps
LONGEST_SPAN = 60.0  # seconds
LONGEST_PAUSE = 0.5  # seconds within one turn
LOUDNESS = 10 ** (-30 / 20)  # root mean square to which quiet speech is raised; the encoder was trained so
SAME_VOICE = 0.38  # mean cosine distance within which clusters are one voice
MOST_CLUSTERED = 3000  # stretches; of longer recordings so many stand for all, so that memory is bounded

_one_at_a_time = threading.Lock()  # the voice activity network has state


class Stretch(NamedTuple):
    """A stretch that is embedded. span: number of its span of speech. begin, end: in frames of the recording."""

    span: int
    begin: int
    end: int


def turns_of(
    waveform: npt.NDArray[np.float32],
    sample_rate: int,
    min_speakers: int | None = None,
    max_speakers: int | None = None,
) -> list[tuple[float, float, str]]:
    """Return (start, end, speaker) in order of time, for Transept's hook `diarize`.

    waveform: float32 [num_samples], mono.
    """
    waveform = _at_own_rate(waveform, sample_rate)
    spans = _speech(waveform)
    if not spans:
        return []
    stretches, mels = _stretches(waveform, spans)
    sure = np.array([len(each) >= SHORTEST_SURE for each in mels])
    voices = _voices(embeddings(mels), sure, min_speakers, max_speakers)
    return _turns(spans, stretches, voices)


def voice_of(waveform: npt.NDArray[np.float32], sample_rate: int) -> npt.NDArray[np.float32]:
    """Return the embedding of a voice, for Transept's hook `embed_voice`. waveform: float32 [num_samples], mono."""
    waveform = _at_own_rate(waveform, sample_rate)
    _, mels = _stretches(waveform, [(0, len(waveform))])
    return np.asarray(embeddings(mels).mean(axis=0), np.float32)


def _at_own_rate(waveform: npt.NDArray[np.float32], sample_rate: int) -> npt.NDArray[np.float32]:
    if sample_rate == RATE:
        return waveform
    return librosa.resample(waveform, orig_sr=sample_rate, target_sr=RATE, res_type="soxr_hq")


def _speech(waveform: npt.NDArray[np.float32]) -> list[tuple[int, int]]:
    """Return the spans of speech, (start, end) in samples."""
    threads = torch.get_num_threads()
    import silero_vad

    torch.set_num_threads(threads)  # importing silero_vad sets one
    with _one_at_a_time:
        found = silero_vad.get_speech_timestamps(
            torch.from_numpy(waveform),
            silero_vad.load_silero_vad(),
            sampling_rate=RATE,
            max_speech_duration_s=LONGEST_SPAN,
            min_speech_duration_ms=100,
        )
    return [(span["start"], span["end"]) for span in found]


def _stretches(
    waveform: npt.NDArray[np.float32], spans: Sequence[tuple[int, int]]
) -> tuple[list[Stretch], list[npt.NDArray[np.float32]]]:
    """Return the stretches to embed, each within one span, and their mel spectrograms."""
    energy = sum(float(np.square(waveform[start:end], dtype=np.float64).sum()) for start, end in spans)
    loudness = (energy / sum(end - start for start, end in spans)) ** 0.5
    gain = np.float32(max(1.0, LOUDNESS / max(loudness, 1e-6)))
    stretches, mels = [], []
    for number, (start, end) in enumerate(spans):
        of_span = spectrogram(waveform[start:end] * gain)
        for begin in range(0, max(1, len(of_span) - FRAMES + 1), STEP):
            own = of_span[begin : begin + FRAMES]
            stretches.append(Stretch(number, start // HOP + begin, start // HOP + begin + len(own)))
            mels.append(own)
    return stretches, mels


def _voices(
    points: npt.NDArray[np.float32],
    sure: npt.NDArray[np.bool_],
    min_speakers: int | None = None,
    max_speakers: int | None = None,
) -> npt.NDArray[np.intp]:
    """Return the number of each stretch's voice. points: [stretches, size]. sure: True if it may make a voice."""
    clustered = points[sure] if sure.any() else points
    clustered = clustered[:: 1 + len(clustered) // MOST_CLUSTERED]
    if len(clustered) < 2:
        return np.zeros(len(points), np.intp)
    clusters = _clusters(clustered, distance_threshold=SAME_VOICE)
    kept = _large(clusters)
    wanted = min(max(len(kept), min_speakers or 1), max_speakers or len(points), len(clustered))
    num_clusters = wanted
    while len(kept) != wanted:  # clusters too small for a voice are apart as well
        clusters = _clusters(clustered, n_clusters=num_clusters)
        kept = _large(clusters, 1 if num_clusters == len(clustered) else FEWEST_STRETCHES)[:wanted]
        num_clusters += 1
    centres = np.stack([clustered[clusters == cluster].mean(axis=0) for cluster in kept])
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    return (points @ centres.T).argmax(axis=1)


def _clusters(
    points: npt.NDArray[np.float32], n_clusters: int | None = None, distance_threshold: float | None = None
) -> npt.NDArray[np.intp]:
    """Return the cluster of each point: so many, or all whose mean distance is larger than the threshold."""
    method = AgglomerativeClustering(
        n_clusters=n_clusters, metric="cosine", linkage="average", distance_threshold=distance_threshold
    )
    return np.asarray(method.fit_predict(points), np.intp)


def _large(clusters: npt.NDArray[np.intp], fewest: int = FEWEST_STRETCHES) -> npt.NDArray[np.intp]:
    """Return the clusters with enough points for a voice, at least one, the largest first."""
    sizes = np.bincount(clusters)
    order = np.argsort(-sizes, kind="stable")
    return order[sizes[order] >= min(fewest, sizes.max())]


def _turns(
    spans: Sequence[tuple[int, int]], stretches: Sequence[Stretch], voices: npt.NDArray[np.intp]
) -> list[tuple[float, float, str]]:
    """Return turns. Within a span, each stretch has the time that is nearest to its middle."""
    names: dict[int, str] = {}
    turns: list[tuple[float, float, str]] = []
    owners = np.array([stretch.span for stretch in stretches])
    for number, (start, end) in enumerate(spans):
        own = np.flatnonzero(owners == number)
        smoothed = median_filter(voices[own], size=3, mode="nearest") if len(own) > 2 else voices[own]
        middles = np.array([(stretches[index].begin + stretches[index].end) / 2 for index in own]) * HOP
        cuts = [start, *((middles[1:] + middles[:-1]) / 2), end]
        for index, voice in enumerate(smoothed):
            name = names.setdefault(int(voice), f"speaker {len(names) + 1}")
            begin, until = float(cuts[index] / RATE), float(cuts[index + 1] / RATE)
            if turns and turns[-1][2] == name and begin - turns[-1][1] < LONGEST_PAUSE:
                turns[-1] = (turns[-1][0], until, name)
            else:
                turns.append((begin, until, name))
    return turns
