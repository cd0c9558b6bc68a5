"""Input features of Fast Conformer encoders: a log-mel spectrogram, each band normalised over the request's audio.

They equal transformers' ParakeetFeatureExtractor and CohereAsrFeatureExtractor. The features of a recording are its
samples, because each window is normalised separately.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transept.authoring import CheckpointView
from transept.multimodal import MappedInput
from transept.multimodal.audio import load_audio
from transept.multimodal.audio_limits import check_window
from transept.multimodal.log_mel import mel_filters
from transept.multimodal.waveforms import Waveform
from transept.plugins.conformer import CANARY_SECONDS, COHERE_SECONDS, SAMPLE_RATE

if TYPE_CHECKING:
    from torch import Tensor

N_FFT, WINDOW, HOP = 512, 400, 160  # samples: spectra of 32 ms, windows of 25 ms, every 10 ms
PREEMPHASIS = 0.97
LEAST_ENERGY = 2.0**-24
EPSILON = 1e-5  # added to a band's deviation
LEAST_FRAMES = 2  # a deviation needs two
DITHER = 1e-5  # of Cohere's waveforms
FACTOR = 8  # frames of an encoder token


def recording_features(waveform: Waveform, view: CheckpointView, device: str) -> Tensor:
    """waveform: float32 [samples]. Returns [1, samples]."""
    import torch

    return torch.from_numpy(waveform)[None].to(device)


def map_features(data: Any, view: CheckpointView) -> MappedInput:
    """data: float32 [1, samples], a slice of `recording_features`. Raises MediaError for over CANARY_SECONDS."""
    return _map(data, view, CANARY_SECONDS, 0.0)


def map_audio(data: Any, view: CheckpointView) -> MappedInput:
    """Map a recording. data: see `load_audio`, such as a path. Otherwise like `map_features`."""
    return map_features(recording_features(load_audio(data, SAMPLE_RATE), view, "cpu"), view)


def map_cohere_features(data: Any, view: CheckpointView) -> MappedInput:
    """Map features as `map_features`, with dither. Raises MediaError for over COHERE_SECONDS."""
    return _map(data, view, COHERE_SECONDS, float(_settings(view).get("dither", DITHER)))


def map_cohere_audio(data: Any, view: CheckpointView) -> MappedInput:
    """Map a recording. data: see `load_audio`, such as a path. Otherwise like `map_cohere_features`."""
    return map_cohere_features(recording_features(load_audio(data, SAMPLE_RATE), view, "cpu"), view)


def _settings(view: CheckpointView) -> Any:
    return view.preprocessor_config or view.processor_config.get("feature_extractor", {})


def _map(data: Any, view: CheckpointView, longest: float, dither: float) -> MappedInput:
    import torch

    samples = torch.as_tensor(data)[0]
    check_window(len(samples) / SAMPLE_RATE, longest)
    missing = max(0, LEAST_FRAMES * HOP - len(samples))
    samples = torch.nn.functional.pad(samples, (0, missing))
    features = normalized_log_mel(dithered(samples, dither), view.config.encoder_config.num_mel_bins)
    return MappedInput(kwargs={"input_features": features}, num_tokens=-(-len(features) // FACTOR))


def dithered(samples: Tensor, dither: float) -> Tensor:
    """Add noise of this deviation, which depends on the number of samples alone."""
    if not dither:
        return samples
    import torch

    generator = torch.Generator().manual_seed(len(samples))
    return samples + dither * torch.randn(len(samples), generator=generator).to(samples)


def normalized_log_mel(samples: Tensor, num_bins: int) -> Tensor:
    """samples: float32 [samples], at least LEAST_FRAMES · HOP. Returns float32 [samples // HOP, num_bins]."""
    import torch

    emphasized = torch.cat([samples[:1], samples[1:] - PREEMPHASIS * samples[:-1]])
    window = torch.hann_window(WINDOW, periodic=False, device=samples.device)
    spectrum = torch.stft(
        emphasized, N_FFT, HOP, WINDOW, window=window, pad_mode="constant", return_complex=True
    )  # [N_FFT / 2 + 1, frames + 1]
    power = torch.view_as_real(spectrum[:, : len(samples) // HOP]).square().sum(-1)
    log_mel = (mel_filters(num_bins, samples.device, N_FFT) @ power + LEAST_ENERGY).log_().t()
    deviation, mean = torch.std_mean(log_mel, dim=0)
    return ((log_mel - mean) / (deviation + EPSILON)).contiguous()
