"""The package on Windows and on accelerators that only PyTorch knows, as far as Linux can show it."""

import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("without_posix.py")


def test_without_posix_everything_imports_and_one_process_runs_a_model(bart_dir):
    ran = subprocess.run([sys.executable, PROGRAM, bart_dir], capture_output=True, text=True, timeout=600)
    assert not ran.returncode, ran.stderr
    before, after, refusal = ran.stdout.splitlines()
    assert before == after
    assert refusal == (
        "on Windows one process runs a model: leave out tensor_parallel_size=3 and pipeline_parallel_size=1"
    )


# PyTorch has a new kind of accelerator, as it has Apple's GPUs on a Mac. Nothing runs on it.
ACCELERATOR = """
import torch
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend
from transept import ParameterError
from transept.core.config import EngineConfig

_setup_privateuseone_for_python_backend("other")
found = EngineConfig("model", device="other").on_this_machine()
half = EngineConfig("model", device="other", dtype="half").on_this_machine()
print(found.device, found.dtype, found.kv_cache_bytes > 0, half.dtype)
print(EngineConfig("model", device="auto").on_this_machine().device)
for options in ({"device": "mps"}, {"quantization": "int8"}, {"tensor_parallel_size": 2}):
    try:
        EngineConfig("model", **{"device": "other", **options}).on_this_machine()
    except ParameterError as error:
        print(error)
"""


def test_an_accelerator_that_only_pytorch_knows_runs_eagerly_on_request():
    ran = subprocess.run([sys.executable, "-c", ACCELERATOR], capture_output=True, text=True, timeout=600)
    assert not ran.returncode, ran.stderr
    resolved, auto, *refusals = ran.stdout.splitlines()
    assert resolved == "other float32 True float16"
    assert auto in ("cpu", "cuda")
    absent, quantized, split = refusals
    assert absent.startswith("device is 'mps', but PyTorch ")
    assert "leave out" in quantized
    assert "quantization='int8'" in quantized
    assert "tensor_parallel_size=2" in split
