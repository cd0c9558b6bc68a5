"""Samples that a program holds already: arrays, tensors and lists, as mono float32.

`transept.multimodal.audio` calls it, also for the blocks that its decoders give. Nothing here knows a sample rate.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from transept.errors import MediaError

Waveform = npt.NDArray[np.float32]  # mono [num_samples]

NO_SAMPLES: Waveform = np.empty(0, np.float32)
PCM_FULL_SCALE = {"uint8": 1 << 7, "int16": 1 << 15, "int32": 1 << 31}
EXPECTED = "pass (waveform, sample_rate), the waveform [num_samples] or [channels, num_samples]"


def is_array(data: Any) -> bool:
    """Whether it is an array of numbers, or one number of such an array: NumPy's, PyTorch's, or like NumPy's."""
    is_text = isinstance(data, str | bytes)  # as NumPy's own are, too
    return not is_text and (hasattr(data, "__array__") or hasattr(data, "__array_interface__"))


def channels_of(waveform: Any) -> npt.NDArray[Any]:
    """An array, tensor or list of samples -> [channels, num_samples]; the shorter of two axes is the channels.

    Raises MediaError for what is none.
    """
    torch = sys.modules.get("torch")  # not loaded, then the waveform is no tensor
    try:
        if torch is not None and isinstance(waveform, torch.Tensor):
            waveform = waveform.detach().cpu()
            waveform = (waveform.float() if waveform.is_floating_point() else waveform).numpy()  # numpy has no bfloat16
        samples = np.asarray(waveform)
    except Exception as error:  # whatever a tensor without numbers raises, or an array's own conversion
        kind = type(waveform).__name__
        raise MediaError(f"the waveform of type {kind} is no array of numbers ({error}): {EXPECTED}") from None
    if not samples.size:
        samples = NO_SAMPLES
    if samples.ndim not in (1, 2):
        raise MediaError(f"the waveform has shape {list(samples.shape)}: {EXPECTED}")
    return samples[None] if samples.ndim == 1 else samples if samples.shape[0] <= samples.shape[1] else samples.T


def mono(samples: npt.NDArray[Any]) -> Waveform:
    """[channels, num_samples] -> the mean of the channels, [num_samples] float32."""
    floats = _to_float(samples)
    mean: Waveform = floats[0] if len(floats) == 1 else floats.mean(axis=0, dtype=np.float32)
    return mean


def _to_float(samples: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Floats as float32, integer PCM scaled from its full scale to [-1, 1)."""
    if samples.dtype.kind == "f":
        with np.errstate(over="ignore"):  # numbers beyond float32 are infinity, which is refused
            return samples.astype(np.float32, copy=False)
    if samples.dtype.name not in PCM_FULL_SCALE:
        raise MediaError(
            f"the waveform has dtype {samples.dtype}: pass floats in [-1, 1], or PCM as {', '.join(PCM_FULL_SCALE)}"
        )
    full_scale = np.float32(PCM_FULL_SCALE[samples.dtype.name])
    middle = full_scale if samples.dtype.kind == "u" else np.float32(0)  # unsigned PCM swings around its middle
    return (samples.astype(np.float32) - middle) / full_scale
