"""Which attention backend is taken."""

import logging

import pytest
import torch

from transept.core.attention.backends.selector import select_backend
from transept.errors import ParameterError

MODEL = (torch.device("cpu"), torch.float32, 64, 16)  # device, dtype, head size, block size


@pytest.mark.parametrize("name", ["auto", "torch"])
def test_torch_serves_the_cpu(name: str) -> None:
    assert select_backend(name, *MODEL).name == "torch"


def test_the_choice_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="transept"):
        select_backend("auto", *MODEL)
    assert "attention backend torch on cpu, torch.float32" in caplog.text


@pytest.mark.parametrize("name", ["flash", "Torch", ""])
def test_an_unknown_name_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(ParameterError, match=f'no attention backend "{name}"; known: auto, .*torch'):
        select_backend(name, *MODEL)
