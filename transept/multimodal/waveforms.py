"""Convert samples in memory, arrays, tensors and lists, to mono float32.

`transept.multimodal.audio` calls it, also for blocks from its decoders. Nothing here depends on the sample rate.
"""

from __future__ import annotations

import sys
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from transept.errors import MediaError
from transept.multimodal.sounds import SILENT_PEAK

Waveform = npt.NDArray[np.float32]  # mono [num_samples]

NO_SAMPLES: Waveform = np.empty(0, np.float32)
SEARCHED_SAMPLES = 1 << 20  # at a time; most recordings have a signal in the first block
PCM_FULL_SCALE = {"uint8": 1 << 7, "int16": 1 << 15, "int32": 1 << 31}
EXPECTED = "pass (waveform, sample_rate), the waveform [num_samples] or [channels, num_samples]"


class SupportsArray(Protocol):
    """An array of NumPy, a tensor of PyTorch, or a similar object."""

    def __array__(self, dtype: Any = None, /) -> npt.NDArray[Any]:
        """Convert to a NumPy array."""


def is_array(data: Any) -> bool:
    """True for an array of numbers of NumPy, PyTorch or a similar library, and for a scalar of one."""
    is_text = isinstance(data, str | bytes)  # NumPy's str and bytes have __array__
    return not is_text and (hasattr(data, "__array__") or hasattr(data, "__array_interface__"))


def channels_of(waveform: Any) -> npt.NDArray[Any]:
    """Convert an array, tensor or list of samples to [channels, num_samples]; the shorter axis is the channels.

    Raises MediaError for other types and shapes.
    """
    torch = sys.modules.get("torch")  # a tensor exists only if torch is loaded
    try:
        if torch is not None and isinstance(waveform, torch.Tensor):
            waveform = waveform.detach().cpu()
            waveform = (waveform.float() if waveform.is_floating_point() else waveform).numpy()  # numpy has no bfloat16
        samples = np.asarray(waveform)
    except Exception as error:  # an array's own conversion may raise anything
        kind = type(waveform).__name__
        raise MediaError(f"the waveform of type {kind} is not an array of numbers ({error}): {EXPECTED}") from None
    if not samples.size:
        samples = NO_SAMPLES
    if samples.ndim not in (1, 2):
        raise MediaError(f"the waveform has shape {list(samples.shape)}: {EXPECTED}")
    return samples[None] if samples.ndim == 1 else samples if samples.shape[0] <= samples.shape[1] else samples.T


def has_sound(waveform: Waveform) -> bool:
    """True if any sample is above SILENT_PEAK. waveform: [num_samples]."""
    pieces = (waveform[at : at + SEARCHED_SAMPLES] for at in range(0, len(waveform), SEARCHED_SAMPLES))
    return any(np.abs(piece).max() > SILENT_PEAK for piece in pieces)


def mono(samples: npt.NDArray[Any]) -> Waveform:
    """Return the mean of the channels, [num_samples] float32. samples: [channels, num_samples]."""
    floats = _to_float(samples)
    mean: Waveform = floats[0] if len(floats) == 1 else floats.mean(axis=0, dtype=np.float32)
    return mean


def _to_float(samples: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Convert floats to float32, and scale integer PCM from its full scale to [-1, 1)."""
    if samples.dtype.kind == "f":
        with np.errstate(over="ignore"):  # numbers beyond float32 become infinity, which is refused later
            return samples.astype(np.float32, copy=False)
    if samples.dtype.name not in PCM_FULL_SCALE:
        raise MediaError(
            f"the waveform has dtype {samples.dtype}: pass floats in [-1, 1], or PCM as {', '.join(PCM_FULL_SCALE)}"
        )
    full_scale = np.float32(PCM_FULL_SCALE[samples.dtype.name])
    middle = full_scale if samples.dtype.kind == "u" else np.float32(0)  # silence in unsigned PCM
    return (samples.astype(np.float32) - middle) / full_scale
