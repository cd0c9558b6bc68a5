"""The one table of kernels: operation, device, dtype, rows and instruction set -> kernel. Start here.

Each Operation below lists its kernels, best first, with the conditions under which each serves. Layers ask an
operation, by `find` with the conditions or by `serving` with a tensor, and call PyTorch's operators if no kernel
serves. No module outside this folder imports a kernel from elsewhere.

`runs` names compiled functions: C++ in `cpu/`, which `cpu/library.py` loads for the processor's instruction set, and
Triton's in `gpu/`. It is empty if a kernel calls PyTorch's operators. One function is compiled once for each
instruction set, with the primitives of `cpu/isa/`; the products by AMX are beside the others in `cpu/gemm/`. Whole
attention backends for GPUs are chosen by `core/attention/backends/selector.py`.

Importing this starts no thread, loads no library of kernels and imports no Triton.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from transept.core.kernels.activations import ACTIVATIONS as ACTIVATIONS
from transept.core.kernels.cpu.attention import encoder_attention, kv_cache, paged_attention
from transept.core.kernels.cpu.attention.paged_attention import MOST_QUERIES as MOST_QUERIES
from transept.core.kernels.cpu.attention.paged_attention import NO_BIAS as NO_BIAS
from transept.core.kernels.cpu.attention.paged_attention import DistanceBias as DistanceBias
from transept.core.kernels.cpu.attention.paged_attention import PagedWork as PagedWork
from transept.core.kernels.cpu.elementwise import argmax, depthwise, norm, rows, uniform
from transept.core.kernels.cpu.exchange import arrival
from transept.core.kernels.cpu.fused.decoder_layer import DecoderLayerKernel as DecoderLayerKernel
from transept.core.kernels.cpu.fused.decoder_layer import DecoderLayersKernel as DecoderLayersKernel
from transept.core.kernels.cpu.fused.decoder_layer import DecodeStep as DecodeStep
from transept.core.kernels.cpu.fused.decoder_layer import Norm as Norm
from transept.core.kernels.cpu.fused.decoder_layer import Projection as Projection
from transept.core.kernels.cpu.fused.feed_forward import FeedForwardKernel as FeedForwardKernel
from transept.core.kernels.cpu.gemm import low_rank, panels, product
from transept.core.kernels.cpu.gemm.low_rank import LowRankTable as LowRankTable
from transept.core.kernels.cpu.gemm.low_rank import RowTiles as RowTiles
from transept.core.kernels.cpu.gemm.panels import WeightPanels as WeightPanels
from transept.core.kernels.cpu.isas import BF16_DOT, DOT_INT8, TILES
from transept.core.kernels.cpu.library import capabilities
from transept.core.kernels.cpu.library import free_scratch as free_scratch
from transept.core.kernels.cpu.library import multiplies_bfloat16 as multiplies_bfloat16
from transept.core.kernels.cpu.library import reads_float16 as reads_float16
from transept.core.kernels.cpu.library import runs_on as runs_on
from transept.core.kernels.cpu.library import share_num_threads as share_num_threads
from transept.core.kernels.cpu.speech import alignment, recurrence
from transept.core.kernels.cpu.speech.alignment import NEIGHBOURS as NEIGHBOURS
from transept.core.kernels.gpu import attention as gpu_attention
from transept.core.kernels.gpu import gelu_product, rounded_weights
from transept.core.kernels.gpu import kv_cache as gpu_kv_cache
from transept.core.kernels.gpu import norm as gpu_norm
from transept.core.kernels.gpu.attention import QUERIES as QUERIES
from transept.core.kernels.gpu.attention import Work as Work
from transept.core.kernels.gpu.attention import in_interpreter as in_interpreter

FunctionT = TypeVar("FunctionT", covariant=True)

FLOAT32 = (torch.float32,)
FLOATS = (torch.float16, torch.bfloat16, torch.float32)
CPU_WEIGHTS = (torch.float32, torch.float16, torch.bfloat16, torch.int8)  # of decoders; encoders also have uint8
ANY_NUMBER = range(1, 1 << 62)
HUNDREDS = 256  # least rows of encoders that read audio or images, for choices made before the rows are known


@dataclass(frozen=True)
class Kernel(Generic[FunctionT]):
    """A row of the table.

    function: the callable. runs: the compiled functions that it calls. device: of the tensors. dtypes: of the tensors.
    weights: dtypes of packed weights, if it reads any. rows: numbers of rows that it serves in a call: rows of a
    product, or queries or tokens of a sequence. inputs: a weight's number of inputs must be a multiple of this.
    quantization: serves only engines with this weight rounding; None: all. long_inputs: True if it serves only encoders
    that read audio or images. needs: capabilities of the processor (cpu/isas.py) without which the kernel does not run,
    or is not the fastest.
    """

    function: FunctionT
    runs: tuple[str, ...] = ()
    device: str = "cpu"
    dtypes: tuple[torch.dtype, ...] = FLOAT32
    weights: tuple[torch.dtype, ...] = ()
    rows: range = ANY_NUMBER
    inputs: int = 1
    quantization: str | None = None
    long_inputs: bool = False
    needs: AbstractSet[str] = frozenset()


class Operation(Generic[FunctionT]):
    """An operation that several kernels compute, each under other conditions."""

    def __init__(self, name: str, *kernels: Kernel[FunctionT]) -> None:
        self.name, self.kernels = name, kernels

    def find(
        self,
        *,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
        weights: torch.dtype | None = None,
        rows: int = 1,
        inputs: int = 0,
        quantization: str | None = None,
        long_inputs: bool = False,
    ) -> FunctionT | None:
        """Return the first kernel that serves, or None."""
        for kernel in self.kernels:
            if (
                kernel.device == device
                and dtype in kernel.dtypes
                and (weights is None or weights in kernel.weights)
                and rows in kernel.rows
                and inputs % kernel.inputs == 0
                and kernel.quantization in (None, quantization)
                and (long_inputs or not kernel.long_inputs)
                and (not kernel.needs or kernel.needs <= capabilities())
            ):
                return kernel.function
        return None

    def serving(
        self, x: Tensor, *, rows: int = 1, quantization: str | None = None, long_inputs: bool = False
    ) -> FunctionT | None:
        """Return the first kernel that serves for a tensor, or None. No kernel serves a tensor that requires grad."""
        if x.requires_grad:
            return None
        return self.find(
            device=x.device.type, dtype=x.dtype, rows=rows, quantization=quantization, long_inputs=long_inputs
        )

    @property
    def only(self) -> FunctionT:
        """The kernel of an operation that has one."""
        (kernel,) = self.kernels
        return kernel.function


class Panels(Protocol):
    """A packed weight [out, in], in the order in which a device's kernels read it. x_dtype: dtype of activations."""

    device: str
    x_dtype: torch.dtype

    @property
    def alignment(self) -> int:
        """`first` of `outputs` must be a multiple of this."""

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the packed weight."""

    def outputs(self, first: int, stop: int) -> Any:
        """Return the part of the weight for outputs `first` to `stop - 1`; `first` is a multiple of `alignment`."""

    def rows(self, indices: Tensor, table: Tensor | None = None, places: Tensor | None = None) -> Tensor:
        """Return rows of the weight, with rows of a table [size, in] added.

        indices, places: integers [count], rows of the weight and of the table. Returns [count, in] in x_dtype.
        """


# Weights. A weight is packed once, when it is loaded; without a kernel it remains a parameter.

OF_PANELS = ("transept_panel", "transept_weight_rows")

PACK: Operation[Callable[[Tensor], Panels]] = Operation(
    "pack a weight",
    Kernel(  # for encoders that read audio or images; docs/notes/kernels.md has the word error rates
        panels.pack_int8_for_int8,
        ("transept_pack_int8", "transept_whole_bytes", *OF_PANELS),
        quantization="int8",
        long_inputs=True,
        needs={DOT_INT8},
    ),
    Kernel(panels.pack_int8, ("transept_pack_int8", *OF_PANELS), quantization="int8"),
    Kernel(
        panels.pack_bfloat16,
        ("transept_pack_bfloat16", "transept_whole_pairs", *OF_PANELS),
        quantization="bfloat16",
    ),
    Kernel(panels.pack_floats, ("transept_pack_floats", *OF_PANELS)),  # in float16 if that is exact
    Kernel(
        rounded_weights.round_to_int8,
        device="cuda",
        dtypes=FLOATS,
        inputs=rounded_weights.ALIGNED,
        quantization="int8",
    ),
    Kernel(
        rounded_weights.round_to_fp8,
        device="cuda",
        dtypes=FLOATS,
        inputs=rounded_weights.ALIGNED,
        quantization="fp8",
    ),
)

PACK_CONVOLUTION: Operation[Callable[[Tensor], Panels]] = Operation(
    "pack a convolution's weight",
    *(  # bfloat16 also with int8, since 8 bits would round too coarsely; in float32, PyTorch's is as fast
        Kernel(
            panels.pack_bfloat16,
            ("transept_pack_bfloat16", "transept_whole_pairs", *OF_PANELS),
            quantization=quantization,
            needs={BF16_DOT},
        )
        for quantization in ("bfloat16", "int8")
    ),
)

# The kernel is chosen once for each weight, not for each call, so that a row's result does not depend on other rows. In
# int8, `transept_product` itself uses AMX for many rows: integer sums are the same either way.
PRODUCT: Operation[Callable[..., Tensor]] = Operation(
    "x @ weight.T + bias, on CPUs with an activation",
    Kernel(
        product.product_by_amx,
        ("transept_float_product_by_amx",),
        weights=(torch.float16,),
        rows=range(HUNDREDS, ANY_NUMBER.stop),
        inputs=32,
        needs={TILES},
    ),
    Kernel(product.product, ("transept_product",), weights=(*CPU_WEIGHTS, torch.uint8)),
    Kernel(rounded_weights.int8_product, ("round_rows",), device="cuda", dtypes=FLOATS, weights=(torch.int8,)),
    Kernel(rounded_weights.fp8_product, ("round_rows",), device="cuda", dtypes=FLOATS, weights=(torch.float8_e4m3fn,)),
)

LOW_RANK = Operation("out += x @ a.T @ b by each row's adapter", Kernel(low_rank.add, ("transept_add_low_rank",)))

# Layers.

DECODER_LAYER: Operation[type[DecoderLayerKernel]] = Operation(
    "a decoder layer whose sequences have a token each",
    Kernel(DecoderLayerKernel, ("transept_decoder_layers",), weights=CPU_WEIGHTS),
)
FEED_FORWARD: Operation[type[FeedForwardKernel]] = Operation(
    "x += fc2(act(fc1(normed)))",
    Kernel(FeedForwardKernel, ("transept_add_feed_forward",), weights=(torch.bfloat16, torch.uint8), needs={TILES}),
)
PRODUCT_AND_GELU = Operation(  # only in bfloat16: elsewhere the error of GELU's tanh form exceeds the rounding error
    "gelu(x @ weight.T + bias)", Kernel(gelu_product.gelu_of_product, device="cuda", dtypes=(torch.bfloat16,))
)
ACTIVATE = Operation("an activation of x + bias, in place", Kernel(rows.activate, ("transept_activate",)))
GATE_AND_CONVOLVE = Operation(
    "a gated linear unit, and a convolution over time of each channel",
    Kernel(depthwise.gate_and_convolve, ("transept_gate_and_convolve",)),
)
NORM: Operation[Callable[..., tuple[Tensor, Tensor]]] = Operation(
    "a sum and its norm",
    Kernel(norm.add_and_norm, ("transept_add_and_norm",)),
    Kernel(gpu_norm.sum_and_norm, ("add_and_normalize",), device="cuda", dtypes=FLOATS),
)

# Attention. Rows are queries of a sequence.

PAGED_ATTENTION = Operation(
    "attention of few queries over the paged cache",
    Kernel(paged_attention.attend, ("transept_attend_paged",), rows=range(1, paged_attention.MOST_QUERIES + 1)),
)
ENCODER_ATTENTION = Operation(
    "attention of a sequence over itself, with a bias by distance or none",
    Kernel(  # with AMX, bfloat16 is faster than 8 bits, and more accurate
        encoder_attention.attend_in_bfloat16,
        ("transept_attend_sequence_in_bfloat16",),
        quantization="int8",
        long_inputs=True,
        needs={TILES},
    ),
    Kernel(
        encoder_attention.attend_in_int8,
        ("transept_attend_sequence_in_int8",),
        quantization="int8",
        long_inputs=True,
        needs={DOT_INT8},
    ),
    Kernel(
        encoder_attention.attend_in_int16,
        ("transept_attend_sequence_in_int16",),
        rows=range(1, encoder_attention.MOST_TOKENS_ROUNDED + 1),
        quantization="int8",
    ),
    Kernel(encoder_attention.attend_in_bfloat16, ("transept_attend_sequence_in_bfloat16",), quantization="bfloat16"),
    Kernel(encoder_attention.attend_sequence, ("transept_attend_sequence",)),
)
RELATIVE_ATTENTION = Operation(
    "attention of a sequence over itself, with keys of distances",
    *(
        Kernel(
            encoder_attention.attend_in_bfloat16,
            ("transept_attend_sequence_in_bfloat16",),
            quantization=quantization,
            needs={BF16_DOT},
        )
        for quantization in ("bfloat16", "int8")
    ),
    Kernel(encoder_attention.attend_sequence, ("transept_attend_sequence",)),
)
GPU_ATTENTION = Operation(
    "attention of flattened sequences, over themselves or the paged cache",
    Kernel(
        gpu_attention.attend_flattened, ("attend_tiles", "attend_pieces", "join_pieces"), device="cuda", dtypes=FLOATS
    ),
)
WRITE_SLOTS = Operation("keys or values into slots side by side", Kernel(kv_cache.copy_rows, ("transept_copy_rows",)))
WRITE_CACHE = Operation(  # a CPU's cache is written by DECODER_LAYER and WRITE_SLOTS, or by PyTorch
    "keys and values into the paged cache",
    Kernel(gpu_kv_cache.write, ("write_rows",), device="cuda", dtypes=FLOATS),
)

# Logits.

ARGMAX = Operation(
    "the highest logit of each row, and its log probability", Kernel(argmax.argmax, ("transept_argmax",))
)
UNIFORM = Operation("random numbers of a key and a place", Kernel(uniform.uniform, ("transept_uniform",)))

# Speech.

MEDIANS = Operation("medians along rows", Kernel(alignment.medians, ("transept_medians_of_seven",)))
CHEAPEST_PATH = Operation(
    "the cheapest path through a matrix",
    Kernel(alignment.cheapest_path, ("transept_cheapest_path",), dtypes=(torch.float64,)),
)
RECURRENCE = Operation("the voice-activity network's memory", Kernel(recurrence.recur, ("transept_recur",)))

# Ranks.

ARRIVE = Operation("wait for the ranks that share memory", Kernel(arrival.arrive, ("transept_arrive",), dtypes=()))

OPERATIONS: tuple[Operation[Any], ...] = (
    *(PACK, PACK_CONVOLUTION, PRODUCT, LOW_RANK, DECODER_LAYER, FEED_FORWARD, PRODUCT_AND_GELU, ACTIVATE),
    *(GATE_AND_CONVOLVE, NORM),
    *(PAGED_ATTENTION, ENCODER_ATTENTION, RELATIVE_ATTENTION, GPU_ATTENTION, WRITE_SLOTS, WRITE_CACHE),
    *(ARGMAX, UNIFORM, MEDIANS, CHEAPEST_PATH, RECURRENCE, ARRIVE),
)
