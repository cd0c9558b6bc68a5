"""Sticky errors of a device, which end the engine: every later CUDA call in the process returns the same error.

The worker and the model runner use this around steps. An out-of-memory error is not sticky, nor is a launch that the
device refuses.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from transept.errors import EngineDeadError, message_of

# Prefixes of messages of CUDA, ROCm, Triton and NCCL. A plugin's message does not start with a user's text.
DEVICE_ERRORS = (
    "CUDA error",
    "CUDA driver error",
    "HIP error",
    "Triton Error",
    "NCCL error",
    "NCCL Error",
    "cuDNN error",
)
# cudaGetErrorString of sticky errors (CUDA runtime API, cudaError_t: "must be terminated and relaunched").
STICKY = (
    "illegal memory access",
    "device-side assert triggered",
    "unspecified launch failure",
    "misaligned address",
    "illegal instruction",
    "invalid program counter",
    "operation not supported on global/shared address space",
    "hardware stack error",
    "launch timed out and was terminated",
    "uncorrectable ECC error",
    "uncorrectable NVLink error",
    "context is destroyed",
    "no CUDA-capable device is detected",
    "CUDA-capable device(s) is/are busy or unavailable",
    "device is lost",
    "communicator was aborted",
    "unknown error",
)


def is_fatal(error: BaseException | None, device: torch.device) -> bool:
    """Return True if an error, or one that caused it, leaves the device unusable.

    For a device error that is not in STICKY, probe the GPU: after a sticky error every call fails.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, EngineDeadError):
            return True
        if isinstance(error, RuntimeError) and not isinstance(error, torch.OutOfMemoryError):
            message = message_of(error)
            first_line = message.partition("\n")[0]  # advice follows, such as to compile with device-side assertions
            sticky = any(words in first_line for words in STICKY)
            if message.startswith(DEVICE_ERRORS) and (sticky or _refuses(device)):
                return True
        error = error.__cause__
    return False


@contextmanager
def fatal_errors_end_the_engine(device: torch.device) -> Iterator[None]:
    """Raise EngineDeadError, with the reason, in place of an error after which the device is unusable."""
    try:
        yield
    except EngineDeadError:
        raise
    except Exception as error:
        if not is_fatal(error, device):
            raise
        raise EngineDeadError(
            f"the device {device} has failed, and the engine has stopped ({_reason(error)}). Make another engine in a "
            f"new process: this one can no longer use the device"
        ) from error


def _refuses(device: torch.device) -> bool:
    """Return True if a GPU fails to synchronize, which happens only after a sticky error."""
    if device.type != "cuda":
        return False
    try:
        torch.cuda.synchronize(device)
    except RuntimeError:
        return True
    return False


def _reason(error: BaseException) -> str:
    """Return the type and the first line of the device's error, which a plugin's error may wrap."""
    while error.__cause__ is not None and not message_of(error).startswith(DEVICE_ERRORS):
        error = error.__cause__
    return f"{type(error).__name__}: {message_of(error).partition(chr(10))[0]}"
