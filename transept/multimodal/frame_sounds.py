"""Join the decoded frames of FFmpeg to larger sounds, with silence where their times leave gaps.

`media` and `flac_frames` give the frames, each placed in its stream. Nothing here decodes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from transept.multimodal.damage import Damage
from transept.multimodal.presentation import Placed
from transept.multimodal.sounds import BLOCK_SAMPLES, Sound, silence


def frame_sounds(frames: Iterable[Placed], damage: Damage) -> Iterator[Sound]:
    """Yield the sounds of placed av.AudioFrames: resampling 20 ms at a time would be slow. Records gaps as damage."""
    import av

    for (_, channels, rate), run in itertools.groupby(frames, key=_Kind()):
        # To packed floats: PyAV's to_ndarray reads past the planes of a planar frame with 8 channels or more.
        queue, packer = av.AudioFifo(), av.AudioResampler(format="flt")
        for each in itertools.chain(run, [None]):  # None: the end
            if each is not None:
                if each.silence:
                    damage.add_gap(each.begin, each.silence / rate)
                    yield from silence(channels, each.silence, rate)
                each.frame.pts = None  # else the queue would reject gaps between the timestamps
                queue.write(each.frame)
            while block := queue.read(BLOCK_SAMPLES // 8, partial=each is None):
                for packed in packer.resample(block):
                    yield Sound(packed.to_ndarray().reshape(-1, packed.layout.nb_channels).T, rate)


class _Kind:
    """Key for grouping adjacent frames: same rate, format and channels, and no gap between them."""

    def __init__(self) -> None:
        self.gaps = 0

    def __call__(self, each: Placed) -> tuple[Any, int, int]:
        frame = each.frame
        self.gaps += bool(each.silence)
        return (self.gaps, frame.format.name, frame.layout.name), frame.layout.nb_channels, frame.sample_rate
