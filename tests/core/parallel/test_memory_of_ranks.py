"""What a rank holds of a model: little more than its share."""

from pathlib import Path

import pytest
import torch

from transept.core.checkpoints.model_description import describe_model
from transept.core.config import EngineConfig
from transept.core.execution.executor import WorkerConfig
from transept.core.execution.worker import Worker, _load
from transept.core.kernels.cpu.library import reads_float16
from transept.core.kernels.dispatch import WeightPanels
from transept.core.layers.packed_weights import PackedWeight
from transept.core.parallel.group import ParallelGroup
from transept.core.parallel.pipeline_stage import PipelineStage

BART = Path(__file__).parents[2] / "data" / "cmudict" / "bart-g2p"


def held_bytes(
    directory: Path, quantization: str | None, group: ParallelGroup, stage: PipelineStage | None = None
) -> int:
    """Of weights, packed or not, each once."""
    config = EngineConfig(str(directory), device="cpu", quantization=quantization).on_this_machine()
    described = describe_model(directory, "", None)
    model, _ = _load(described, config, torch.float32, group, stage or PipelineStage())
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


def test_a_stage_holds_its_layers_and_the_vocabulary_if_it_needs_it(tiny_en_dir: Path) -> None:
    """Whisper's matrix of the vocabulary embeds in the first stage and is the head in the last."""
    whole = held_bytes(tiny_en_dir, None, ParallelGroup())
    sizes = [held_bytes(tiny_en_dir, None, ParallelGroup(), PipelineStage(index, 3)) for index in range(3)]
    matrix = (
        51864 * 384 * (2 if reads_float16() else 4)
    )  # bytes; where kernels read it, what float16 holds is packed in it
    layers = whole - matrix
    assert sizes[1] < 0.4 * layers
    assert matrix + 0.2 * layers < sizes[0] < matrix + 0.6 * layers
    assert matrix + 0.2 * layers < sizes[2] < matrix + 0.5 * layers


@pytest.mark.parametrize("stage", [PipelineStage(index, 2) for index in range(2)], ids=["first", "last"])
def test_a_stage_has_a_cache_of_its_own_layers(tiny_en_dir: Path, stage: PipelineStage) -> None:
    config = EngineConfig(str(tiny_en_dir), device="cpu", kv_cache_bytes=1 << 24).on_this_machine()
    limits = config.scheduler_config(1500, 448)
    described = describe_model(tiny_en_dir, "", None)
    whole = Worker(WorkerConfig(tiny_en_dir, config, limits), described)
    worker = Worker(WorkerConfig(tiny_en_dir, config, limits), described, ParallelGroup(), stage)
    assert worker.num_device_blocks == whole.num_device_blocks
    assert [len(each.cache.layers) for each in (whole, worker)] == [4, 3 if stage.is_first else 1]
    held = [bool(cache.numel()) for cache in worker.runner.decoder.kv_caches]
    assert held == ([True, True, True, False] if stage.is_first else [False, False, False, True])
