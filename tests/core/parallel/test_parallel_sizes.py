"""The sizes of ranks and stages are checked before a worker starts, with layers that take no memory."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from transept.core.checkpoints.model_description import ModelDescription, describe_model
from transept.core.checkpoints.parallel_sizes import check_parallel_sizes
from transept.errors import ParameterError

BART = Path(__file__).parents[2] / "data" / "cmudict" / "bart-g2p"


@pytest.fixture
def described() -> ModelDescription:
    return describe_model(BART, str(BART), None)


def test_sizes_that_do_not_divide_the_heads_are_refused_with_those_that_do(described: ModelDescription) -> None:
    check_parallel_sizes(described, 2, 2)
    with pytest.raises(ParameterError, match=r"by tensor_parallel_size: 1, 2, 4"):
        check_parallel_sizes(described, 3, 1)


def test_a_model_that_reads_numbers_while_it_is_built_is_left_to_its_workers(described: ModelDescription) -> None:
    class Reads(described.model_class):
        def __init__(self, config: Any, context: Any) -> None:
            super().__init__(config, context)
            self.total = torch.ones(2).sum().item()  # which has no value on the meta device

    check_parallel_sizes(dataclasses.replace(described, model_class=Reads), 2, 1)
