"""Clustering: one cluster of embeddings for each speaker. `diarizer` calls `cluster`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.cluster.hierarchy import fcluster, linkage

SAME_SPEAKER = 0.65  # mean cosine distance within which clusters are one speaker
SURE = 1.0  # seconds; shorter pieces are assigned after the clustering
LEAST_SPEECH = 2.0  # seconds of a speaker, in all, at least
LEAST_SHARE = 1 / 30  # of all speech, where that is less; a speaker in a short recording may speak briefly
MOST_CLUSTERED = 4000  # pieces; of longer recordings, every second or every third one and so on, to bound memory
ROUNDS = 3  # of assigning each piece to the nearest cluster

Embeddings = npt.NDArray[np.float32]
Labels = npt.NDArray[np.intp]


def cluster(points: Embeddings, durations: npt.NDArray[np.float64], least: int, most: int | None) -> Labels:
    """Return the number of each piece's speaker, [pieces].

    points: embeddings, [pieces, size], of length 1. durations: of the pieces, in seconds. least, most: bounds of the
    number of speakers. Fewer pieces make fewer speakers.
    """
    clustered = _clustered(durations, max(least, 2))
    if len(clustered) < 2:
        return np.zeros(len(points), np.intp)
    sure = points[clustered]
    labels = _speakers(sure, durations[clustered], least, most)
    for _ in range(ROUNDS):
        centres = _centres(sure, durations[clustered], labels)
        nearest = (sure @ centres.T).argmax(axis=1)
        if len(np.unique(nearest)) < len(centres):  # a speaker would lose all pieces
            break
        labels = nearest
    found = (points @ centres.T).argmax(axis=1)
    found[clustered] = np.where(labels >= 0, labels, found[clustered])
    return found


def _centres(points: Embeddings, durations: npt.NDArray[np.float64], labels: Labels) -> Embeddings:
    """Return the mean direction of each cluster, [clusters, size]."""
    weighted = points * durations[:, None]
    centres = np.stack([weighted[labels == label].sum(axis=0) for label in range(labels.max() + 1)])
    return np.asarray(centres / np.linalg.norm(centres, axis=1, keepdims=True), np.float32)


def _clustered(durations: npt.NDArray[np.float64], least: int) -> npt.NDArray[np.intp]:
    """Return the indices of the pieces to cluster: all of at least SURE seconds, or the `least` longest."""
    long = np.flatnonzero(durations >= SURE)
    if len(long) < least:
        long = np.sort(np.argsort(-durations, kind="stable")[:least])
    return long[:: 1 + len(long) // MOST_CLUSTERED]


def _speakers(points: Embeddings, durations: npt.NDArray[np.float64], least: int, most: int | None) -> Labels:
    """Return the number of each point's cluster, or -1 for clusters with too little speech to be a speaker."""
    tree = linkage(points, "average", metric="cosine")
    labels = _large(fcluster(tree, SAME_SPEAKER, "distance"), durations)
    found = labels.max() + 1
    wanted = max(found, least) if most is None else min(max(found, least), most)
    if wanted == found:
        return labels
    for number in range(wanted, min(len(points), 4 * wanted + 20) + 1):  # small clusters may split off first
        labels = _large(fcluster(tree, number, "maxclust"), durations)
        if labels.max() + 1 == wanted:
            return labels
    return fcluster(tree, wanted, "maxclust").astype(np.intp) - 1


def _large(clusters: npt.NDArray[np.int32], durations: npt.NDArray[np.float64]) -> Labels:
    """Number the clusters with at least LEAST_SPEECH or LEAST_SHARE, or with the most, from 0. All others are -1."""
    speech = np.bincount(clusters, durations)
    least = min(LEAST_SPEECH, LEAST_SHARE * speech.sum(), speech.max())
    large = np.flatnonzero(speech >= least)
    numbers = np.full(len(speech), -1, np.intp)
    numbers[large] = np.arange(len(large))
    return numbers[clusters]
