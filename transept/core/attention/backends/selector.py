"""Select the attention backend for a model and a device."""

from __future__ import annotations

import importlib
import logging

import torch

from transept.core.attention.backends.base import AttentionBackend
from transept.errors import ParameterError

logger = logging.getLogger(__name__)

# name -> class, imported on first use
_BACKENDS = {
    "torch": "transept.core.attention.backends.torch:TorchBackend",
    "triton": "transept.core.attention.backends.triton:TritonBackend",
    "xformers": "transept.core.attention.backends.xformers:XformersBackend",
}
_AUTO = {"cuda": ("triton", "torch")}  # device type -> what "auto" takes, in order of preference; else "torch"


def select_backend(
    name: str,
    device: torch.device,
    dtype: torch.dtype,
    head_dim: int,
    block_size: int,
    cache_dtype: torch.dtype,
    quantization: str | None = None,
    *,
    long_inputs: bool = False,
) -> AttentionBackend:
    """Return the named backend, or for ``"auto"`` the first that can serve, in the device's order of preference.

    dtype: of activations. cache_dtype: of keys and values in the cache. quantization: of the model's weights.
    long_inputs: True if the encoder reads audio or images.

    Raises ParameterError, with the reasons, if the named backend cannot serve or does not exist.
    """
    if name != "auto" and name not in _BACKENDS:
        message = f"there is no {{attention_backend}} {name!r}; known: auto, {', '.join(_BACKENDS)}"
        raise ParameterError(message, param="attention_backend", value=name)
    asked = _AUTO.get(device.type, ("torch",)) if name == "auto" else (name,)
    refusals: list[str] = []
    for candidate in asked:
        module_name, _, class_name = _BACKENDS[candidate].partition(":")
        backend_class: type[AttentionBackend] = getattr(importlib.import_module(module_name), class_name)
        reasons = backend_class.reasons_against(device, dtype, head_dim, block_size)
        if cache_dtype is not dtype and cache_dtype not in backend_class.cache_dtypes:
            reasons.append(f"it reads no keys and values in {cache_dtype}")
        if not reasons:
            if refusals:
                logger.info("attention backends passed over: %s", "; ".join(refusals))
            return backend_class(quantization, long_inputs=long_inputs)
        refusals.append(f"{candidate}: {', '.join(reasons)}")
    message = f"{{attention_backend}} {name!r} cannot serve {dtype} on {device}: {'; '.join(refusals)}"
    raise ParameterError(message, param="attention_backend", value=name)
