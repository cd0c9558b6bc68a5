"""The weights of the diarizer's two networks, and the function that reads them. README.md names their licences.

benchmarks/speaker_weights.py made the files. In them, large matrices are int8 with a factor for each row.
"""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

FACTORS = ".factors"  # suffix of the name of a matrix's factors


def read_weights(network: str) -> dict[str, Tensor]:
    """Return the weights of a network in float32. network: "segmentation" or "embedding"."""
    stored = load_file(Path(__file__).parent / f"{network}.safetensors")
    return {
        name: tensor.float() * stored[name + FACTORS].float() if name + FACTORS in stored else tensor.float()
        for name, tensor in stored.items()
        if not name.endswith(FACTORS)
    }
