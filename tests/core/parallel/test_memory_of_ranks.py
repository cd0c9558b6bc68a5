"""What a rank holds of a model: little more than its share."""

from pathlib import Path

import pytest
import torch

from transept.core.checkpoints.model_description import describe_model
from transept.core.config import EngineConfig
from transept.core.execution.worker import _load
from transept.core.kernels.dispatch import WeightPanels
from transept.core.layers.packed_weights import PackedWeight
from transept.core.parallel_group import ParallelGroup

BART = Path(__file__).parents[2] / "data" / "cmudict" / "bart-g2p"


def held_bytes(directory: Path, quantization: str | None, group: ParallelGroup) -> int:
    """Of weights, packed or not, each once."""
    config = EngineConfig(str(directory), device="cpu", quantization=quantization).on_this_machine()
    model = _load(describe_model(directory, "", None), config, torch.device("cpu"), torch.float32, group)
    tensors = [parameter for parameter in model.parameters() if not parameter.is_meta]
    for module in model.modules():
        packed = getattr(module, "packed", None)
        if isinstance(packed, PackedWeight):
            assert isinstance(packed.panels, WeightPanels)
            tensors += [each for each in (packed.panels.values, packed.panels.scales) if each is not None]
    return sum({tensor.data_ptr(): tensor.nbytes for tensor in tensors}.values())


@pytest.mark.parametrize("quantization", [None, "int8"])
@pytest.mark.parametrize("model", ["tiny_en_dir", "bart"])
def test_two_ranks_hold_six_tenths_each_at_most(
    model: str, quantization: str | None, request: pytest.FixtureRequest
) -> None:
    directory = BART if model == "bart" else request.getfixturevalue(model)
    whole = held_bytes(directory, quantization, ParallelGroup())
    for rank in range(2):
        assert 0.45 * whole < held_bytes(directory, quantization, ParallelGroup(rank, 2)) <= 0.6 * whole
