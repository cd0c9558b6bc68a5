"""Clip bursts: samples far over full scale, which come from damaged packets of lossy codecs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from transept.multimodal.channels import Intake
from transept.multimodal.sounds import Sound

HIGHEST_PEAK = 16.0  # 24 dB over full scale: lossy codecs overshoot 1.0 a little, unscaled integers by far more


def without_bursts(sounds: Iterable[Sound], intake: Intake) -> Iterator[Sound]:
    """Clip samples beyond HIGHEST_PEAK, which come from damage, to full scale, and warn of them."""
    num_clipped, seconds, first = 0, intake.begin, 0.0
    for sound in sounds:
        samples = sound.samples
        if (
            not -HIGHEST_PEAK <= samples.min(initial=0) <= samples.max(initial=0) <= HIGHEST_PEAK
        ):  # nor where one is NaN
            beyond = ~(np.abs(samples) <= HIGHEST_PEAK)
            first = first if num_clipped else seconds + int(beyond.any(axis=0).argmax()) / sound.rate
            num_clipped += int(beyond.sum())
            sound = sound._replace(samples=np.clip(np.nan_to_num(samples), -1.0, 1.0))
        seconds += sound.seconds
        yield sound
    if num_clipped:
        intake.warnings.append(
            f"damaged: {num_clipped} samples far over full scale were clipped, from {first:.1f} s on"
        )
