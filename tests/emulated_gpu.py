"""A GPU that is not there, for tests of what the host does with one.

Its tensors lie in the host's memory and say that they are on cuda:0. Operations give what they give on a CPU; kernels
run in Triton's interpreter. What a real one refuses raises: operations over tensors of both sides, kernels given memory
of the host, waits and copies from the host while a graph is captured. Waits are counted. A copy that does not block
arrives when its event is waited for; until then its target holds nonsense, and its source must stay as it is. Once the
device has a fault, every wait for it raises that. Its memory is counted: of a graph that is captured everything stays,
where a GPU would use what is free in the pool again.

Streams are taken to run in the order of their calls, and nothing is said of speed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

GPU = torch.device("cuda", 0)
WAITS = {
    "item",
    "tolist",
    "nonzero",
    "equal",
    "unique",
    "masked_select",
    "__bool__",
    "__int__",
    "__float__",
    "__index__",
}
ASKS = {  # which say something of a tensor, or of its memory, and compute nothing
    *("size", "dim", "stride", "numel", "data_ptr", "element_size", "storage_offset", "untyped_storage", "__len__"),
    *("is_contiguous", "is_floating_point", "is_complex", "is_inference", "requires_grad_", "__set__"),
}


class EmulatedGpu(TorchFunctionMode):
    """Every call of PyTorch's while it is entered. waits: how often the host waited for the device, and for what."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()
        self.arriving: dict[int, tuple[Tensor, Tensor]] = {}  # by number, targets on the host and what they will hold
        self.num_copies = 0
        self.memory = 1 << 30  # bytes
        self.used = self.most_used = 0
        self.leaving: list[tuple[Tensor, Tensor]] = []  # sources on the host and what they must still hold
        self.fault: Exception | None = None
        self.recorded: list[Callable[[], None]] | None = None  # calls of the graph that is being captured

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = func.__name__, dict(kwargs or {})
        if name == "__get__":
            return self._property(func, *args)
        if name in ASKS:
            return func(*args, **kwargs)
        if name == "pin_memory":
            return _mark(func.__objclass__.clone(*args), "pinned")
        if name in ("to", "cpu", "cuda"):
            return self._move(func, *args, **kwargs)
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        here = [tensor for tensor in tensors if not on_gpu(tensor)]
        if name == "copy_" and len(here) == 1 and here[0].dim():
            return self._copy(*args, **kwargs)
        on = len(here) < len(tensors)
        if on and any(tensor.dim() for tensor in here):
            raise RuntimeError(f"{name}: tensors on several devices")
        if on and (name in WAITS or (name in ("__getitem__", "__setitem__") and _chooses(args[1]))):
            self.wait(name)
        if kwargs.get("device") is not None:
            on = torch.device(kwargs["device"]).type == "cuda"
            kwargs["device"] = "cpu"
            if name == "tensor" and on:
                self.wait("torch.tensor")
        pinned = kwargs.pop("pin_memory", False)
        if pinned and (on or (name == "tensor" and hasattr(args[0], "__array__"))):
            raise RuntimeError(f"{name}: pins lists and memory of the host only, and no arrays")
        out = func(*args, **kwargs)
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor) and (on or pinned):
                self.place(tensor) if on else _mark(tensor, "pinned")
        if on:
            self.record(lambda: _renew(out, func(*args, **kwargs)))
        return out

    def place(self, tensor: Tensor) -> None:
        """Say of a tensor's memory that it is the GPU's."""
        if not on_gpu(tensor):
            tensor.untyped_storage().on_gpu = Held(self, tensor.untyped_storage().nbytes())

    def wait(self, reason: str, num_copies: int | None = None) -> None:
        """Wait for all that is under way, or for the first copies to the host."""
        if self.recorded is not None:
            raise RuntimeError(f"{reason}: a graph that is being captured waits for nothing")
        self.waits[reason] += 1
        if self.fault is not None:
            raise self.fault
        with torch._C.DisableTorchFunction(), torch.inference_mode():
            if not all(torch.equal(source, expected) for source, expected in self.leaving):
                raise RuntimeError("memory of the host was written while a copy from it was under way")
            self.leaving.clear()
            for number in [each for each in self.arriving if num_copies is None or each < num_copies]:
                target, values = self.arriving.pop(number)
                target.copy_(values)

    def record(self, call: Callable[[], None]) -> None:
        """Let replays of the graph that is being captured call this."""
        if self.recorded is not None:
            self.recorded.append(call)

    def _property(self, func: Any, tensor: Tensor, *rest: Any) -> Any:
        name = getattr(func.__self__, "__name__", "")
        if name in ("device", "is_cuda", "is_cpu") and on_gpu(tensor):
            return GPU if name == "device" else name == "is_cuda"
        return func(tensor, *rest)

    def _move(self, func: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """`to`, `cpu` and `cuda`."""
        places = [each for each in (*args, kwargs.get("device")) if isinstance(each, str | torch.device)]
        places += [] if func.__name__ == "to" else [func.__name__]
        dtypes = [each for each in (*args, kwargs.get("dtype")) if isinstance(each, torch.dtype)]
        if args and isinstance(args[0], Tensor):  # be like this one
            places, dtypes = ["cuda" if on_gpu(args[0]) else "cpu"], [args[0].dtype]
        there = torch.device(places[0]).type == "cuda" if places else on_gpu(tensor)
        same_place, dtype = there == on_gpu(tensor), dtypes[0] if dtypes else tensor.dtype
        if same_place and dtype is tensor.dtype:
            return tensor
        with torch._C.DisableTorchFunction():
            out = torch.empty_like(tensor, dtype=dtype)
        if there:
            self.place(out)
        if same_place:
            with torch._C.DisableTorchFunction():
                out.copy_(tensor)
            self.record(lambda: _renew(out, tensor))
            return out
        return self._copy(out, tensor, non_blocking=kwargs.get("non_blocking", False))

    def _copy(self, target: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
        """Between the two sides."""
        if self.recorded is not None:
            raise RuntimeError("a copy between devices in a graph that is being captured")
        held = source.untyped_storage() if on_gpu(target) else target.untyped_storage()
        blocking = not (non_blocking and getattr(held, "pinned", False))
        if blocking and source.numel():
            self.wait("copy")
        with torch._C.DisableTorchFunction():
            if blocking or on_gpu(target):
                target.copy_(source)
            else:
                target.fill_(-123)
                self.arriving[self.num_copies] = target.detach(), source.detach().clone()
                self.num_copies += 1
            if not blocking and on_gpu(target):
                self.leaving.append((source.detach(), source.detach().clone()))
        return target


class Held:
    """Memory that is the GPU's, counted until it is freed."""

    def __init__(self, gpu: EmulatedGpu, num_bytes: int) -> None:
        self._gpu, self._num_bytes = gpu, num_bytes
        gpu.used += num_bytes
        gpu.most_used = max(gpu.most_used, gpu.used)

    def __del__(self) -> None:
        self._gpu.used -= self._num_bytes


def on_gpu(tensor: Tensor) -> bool:
    """Whether the tensor says that it is on the GPU."""
    return hasattr(tensor.untyped_storage(), "on_gpu")


def _mark(tensor: Tensor, name: str) -> Tensor:
    """Say it of the memory, which views share."""
    setattr(tensor.untyped_storage(), name, True)
    return tensor


def _chooses(index: Any) -> bool:
    """Whether how much an index takes depends on numbers, or it comes from the host."""
    parts = index if isinstance(index, tuple) else (index,)
    return any(isinstance(part, list) or (isinstance(part, Tensor) and part.dtype is torch.bool) for part in parts)


def _renew(old: Any, new: Any) -> None:
    """Put what a call gave this time where it gave it when it was recorded."""
    for target, source in zip(tree_leaves(old), tree_leaves(new), strict=True):
        if isinstance(target, Tensor) and target.data_ptr() != source.data_ptr():
            target.copy_(source)


@contextmanager
def emulated_gpu() -> Iterator[EmulatedGpu]:
    """Let PyTorch have such a GPU."""
    from triton.runtime.interpreter import GridExecutor

    gpu, launch = EmulatedGpu(), GridExecutor.__call__

    def launch_here(executor: Any, *args: Any, **kwargs: Any) -> None:
        if any(isinstance(each, Tensor) and not each.is_cuda for each in args):
            raise RuntimeError("a kernel is given memory of the host")

        def run() -> None:
            with torch._C.DisableTorchFunction():
                launch(executor, *args, **kwargs)

        run()
        gpu.record(run)

    class Event:
        def record(self) -> None:
            self.num_copies = gpu.num_copies

        def synchronize(self) -> None:
            gpu.wait("event", self.num_copies)

    class Stream:
        device = GPU

        def __init__(self, device: Any = None) -> None:
            pass

        def wait_stream(self, stream: Any) -> None:
            pass

    class Graph:
        def replay(self) -> None:
            with torch._C.DisableTorchFunction():
                for call in self.calls:
                    call()

    @contextmanager
    def capture(graph: Any, pool: Any = None, stream: Any = None, capture_error_mode: str = "") -> Iterator[None]:
        gpu.recorded = graph.calls = []
        try:
            yield
        finally:
            gpu.recorded = None

    with pytest.MonkeyPatch.context() as patch, gpu:
        patch.setattr(GridExecutor, "__call__", launch_here)
        stand_ins = {
            "is_available": lambda: True,
            "device_count": lambda: 1,
            "device": lambda device: nullcontext(),
            "Event": Event,
            "Stream": Stream,
            "stream": nullcontext,
            "current_stream": Stream,
            "CUDAGraph": Graph,
            "graph": capture,
            "graph_pool_handle": lambda: None,
            "set_stream": lambda stream: None,
            "synchronize": lambda device=None: gpu.wait("synchronize"),
            "empty_cache": lambda: None,
            "mem_get_info": lambda device=None: (gpu.memory - gpu.used, gpu.memory),
            "memory_reserved": lambda device=None: gpu.used,
            "max_memory_allocated": lambda device=None: gpu.most_used,
            "reset_peak_memory_stats": lambda device=None: setattr(gpu, "most_used", gpu.used),
        }
        for name, stand_in in stand_ins.items():
            patch.setattr(torch.cuda, name, stand_in)
        yield gpu
