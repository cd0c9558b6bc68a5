"""Which attention backend is taken."""

import logging
from pathlib import Path

import pytest
import torch

from transept.core.attention.backends.base import AttentionBackend
from transept.core.attention.backends.selector import select_backend
from transept.core.attention.backends.torch import TorchBackend
from transept.core.attention.backends.triton import TritonBackend
from transept.core.attention.backends.xformers import XformersBackend
from transept.core.engine import Engine
from transept.errors import ParameterError

MODEL = (
    torch.device("cpu"),
    torch.float32,
    64,
    16,
    torch.float32,
)  # device, dtype, head size, block size, cache's dtype
GPU = torch.device("cuda")
CHECKPOINT = Path(__file__).parents[2] / "data" / "cmudict" / "bart-g2p"


@pytest.mark.parametrize("name", ["auto", "torch"])
def test_torch_serves_the_cpu(name: str) -> None:
    assert select_backend(name, *MODEL).name == "torch"


def test_triton_serves_a_gpu() -> None:
    pytest.importorskip("triton")
    for dtype, head_dim, block_size in ((torch.float32, 64, 64), (torch.bfloat16, 84, 64), (torch.float16, 64, 16)):
        assert select_backend("auto", GPU, dtype, head_dim, block_size, dtype).name == "triton"


def test_xformers_says_what_it_would_need() -> None:
    with pytest.raises(ParameterError) as refusal:
        select_backend("xformers", torch.device("cpu"), torch.float32, 80, 16, torch.float32)
    for reason in (
        "it runs on GPUs",
        "it computes in float16 and bfloat16",
        "heads have 80 dimensions, but it supports 16, 32, 64, 128, 256",
        "block_size is 16, but it supports multiples of 64",
    ):
        assert reason in str(refusal.value)


def test_a_gpu_gets_torch_where_triton_cannot_serve_and_is_told_why(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="transept"):
        assert select_backend("auto", GPU, torch.bfloat16, 512, 16, torch.bfloat16).name == "torch"
    assert "triton: heads have 512 dimensions, but it supports at most 256" in caplog.text


def test_triton_without_a_gpu_wants_its_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(ParameterError, match=r"triton: .*it runs on GPUs; elsewhere only with TRITON_INTERPRET=1"):
        select_backend("triton", *MODEL)
    with pytest.raises(ParameterError, match="it computes in float16, bfloat16, float32"):
        select_backend("triton", GPU, torch.float64, 64, 16, torch.float64)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"dtype": "bfloat16"}, "dtype bfloat16, quantization none"),
        ({"quantization": "int8"}, "dtype float32, quantization int8"),
    ],
)
def test_the_choice_is_told(options: dict[str, str], told: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="transept"):
        Engine(CHECKPOINT, device="cpu", **options)
    assert f"attention backend torch on cpu, {told}" in caplog.text


@pytest.mark.parametrize("name", ["flash", "Torch", ""])
def test_an_unknown_name_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(ParameterError, match=f"no attention_backend '{name}'; known: auto, .*torch"):
        select_backend(name, *MODEL)


@pytest.mark.parametrize("backend_class", [TorchBackend, TritonBackend, XformersBackend])
def test_every_backend_can_be_made_for_rounded_weights(backend_class: type[AttentionBackend]) -> None:
    assert backend_class("int8").quantization == "int8"


def test_only_triton_reads_fp8() -> None:
    pytest.importorskip("triton")
    assert select_backend("auto", GPU, torch.float32, 64, 64, torch.float8_e4m3fn).name == "triton"
    for name in ("torch", "xformers"):
        with pytest.raises(ParameterError, match=r"it reads no keys and values in torch\.float8_e4m3fn"):
            select_backend(name, GPU, torch.bfloat16, 64, 64, torch.float8_e4m3fn)
