"""The GPUs and other accelerators that PyTorch sees, and whether an engine fits on them."""

from __future__ import annotations

from typing import Any

from transept.options import refusal


def other_accelerator() -> str | None:
    """Return the type of PyTorch's accelerator on this machine, such as "mps"; None without one, and for "cuda"."""
    import torch

    found = torch.accelerator.current_accelerator()
    return None if found is None or found.type == "cuda" else found.type


def check_eager(config: Any, device: str) -> None:
    """Raise ParameterError unless PyTorch sees the device, and for options that need Transept's own kernels.

    config: an EngineConfig.
    """
    import torch

    if device != other_accelerator():
        sees = f"PyTorch {torch.__version__} sees none; use {{device='cpu'}}"
        raise refusal(config, f"{{device}} is {device!r}, but {sees}")
    if config.num_ranks > 1 or config.quantization or config.kv_cache_dtype != "auto":
        options = "{tensor_parallel_size=}, {pipeline_parallel_size=}, {quantization=} and {kv_cache_dtype=}"
        raise refusal(config, f"on {{device}} {device!r}, one device runs PyTorch's own operators: leave out {options}")


def check_gpus(config: Any, device: str) -> None:
    """Raise ParameterError unless PyTorch sees the device, and one GPU for each rank. config: an EngineConfig."""
    import torch

    count, num_ranks = torch.cuda.device_count(), config.num_ranks
    if not torch.cuda.is_available():
        sees = f"PyTorch {torch.__version__} sees no GPU; use {{device='cpu'}}"
        raise refusal(config, f"{{device}} is {device!r}, but {sees}")
    if int(device.partition(":")[2] or 0) >= count:
        raise refusal(config, f"{{device}} is {device!r}, but PyTorch sees {count} GPUs, from cuda:0 on")
    if num_ranks > 1 and (device != "cuda" or count < num_ranks):
        sizes = "{tensor_parallel_size=} and {pipeline_parallel_size=}"
        found = f"{{device=}} was given, and PyTorch sees {count}"
        raise refusal(config, f"{sizes} take the first {num_ranks} GPUs of {{device='cuda'}}; {found}")
