"""Linear layers: column, row, QKV and encoder/decoder QKV.

Sharding over a process group is a property of a layer and its weight loader, never of a model file. A layer receives
its group and has its rank's part; `StackedParameter.shards` describes which part of a checkpoint's weight that is. A
column-parallel layer computes some of the outputs. A row-parallel layer takes some of the inputs, and all-reduces the
products.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transept.core.kernels.dispatch import Projection, WeightPanels
from transept.core.layers.adapters import LayerAdapters, rows_in_use
from transept.core.layers.packed_weights import PackedWeight
from transept.core.parallel.group import ParallelGroup, Shard

ALL = slice(None)
WHOLE = ""  # the one part of a parameter without parts


class StackedParameter(nn.Parameter):
    """A weight or bias whose rows are several named parts, which may be separate tensors in checkpoints.

    parts: part name -> its rows, in order; empty if the parameter has no parts.
    shards: part name, or WHOLE -> the rank's shard of the checkpoint's tensor; empty without sharding.
    """

    parts: dict[str, slice]
    shards: dict[str, Shard]

    @classmethod
    def of(
        cls, shape: tuple[int, ...], sizes: dict[str, int], shards: dict[str, Shard] | None = None
    ) -> StackedParameter:
        """Make an uninitialised parameter of this shape. sizes: part name -> number of rows, in order."""
        parameter = cls(torch.empty(shape), requires_grad=False)
        parameter.parts, parameter.shards, start = {}, shards or {}, 0
        for name, size in sizes.items():
            parameter.parts[name] = slice(start, start + size)
            start += size
        return parameter


def matmul(
    x: Tensor,
    weight: Tensor | PackedWeight,
    bias: Tensor | None = None,
    outputs: slice = ALL,
    *,
    of_encoder: bool = False,
) -> Tensor:
    """Return ``x @ weight.T + bias``.

    x: [tokens, in]. weight: [out, in]. bias: [out]. outputs: the outputs to compute. of_encoder: True if x is an
    encoder's output.
    Returns [tokens, out], contiguous.
    """
    if isinstance(weight, PackedWeight):
        return weight.matmul(x, bias, outputs, of_encoder=of_encoder)
    return F.linear(x, weight[outputs], None if bias is None else bias[outputs])


class Linear(nn.Module):
    """``y = x Wᵀ + b``; weight [out, in], bias [out]. The base of the parallel layers.

    stacked: part name -> number of rows, if the weight is several stacked matrices. shards: of the weight, see
    StackedParameter; shards of rows also apply to the bias.
    """

    weight: StackedParameter  # filled by a checkpoint; on the meta device if it is packed
    packed: PackedWeight | None  # set by packing.WeightPacker once the weight is loaded
    adapters: LayerAdapters | None  # set by execution.model_adapters

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        stacked: dict[str, int] | None = None,
        shards: dict[str, Shard] | None = None,
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        parts = stacked or {}
        self.weight = StackedParameter.of((out_features, in_features), parts, shards)
        self.packed = self.adapters = None
        of_bias = {part: shard for part, shard in (shards or {}).items() if shard.dim == 0}
        self.bias = StackedParameter.of((out_features,), parts, of_bias) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """x: [tokens, in]. Returns [tokens, out]."""
        return self.adapted(x, matmul(x, self.packed or self.weight, self.bias))

    def adapted(self, x: Tensor, out: Tensor, first: int = 0) -> Tensor:
        """Add the updates of the rows' adapters to products, in place, and return them. first: the first output."""
        if self.adapters is None or (rows := rows_in_use()) is None:
            return out
        return self.adapters.add(rows, x, out, first)

    def projection(self, outputs: int | None = None) -> Projection | None:
        """Return the packed weight and bias, of all or the first outputs; None if not packed for CPU kernels."""
        panels = None if self.packed is None else self.packed.panels
        if not isinstance(panels, WeightPanels):
            return None
        bias = None if self.bias is None else self.bias[:outputs]
        updates = None if self.adapters is None else self.adapters.table
        return Projection(panels.outputs(0, panels.num_outputs if outputs is None else outputs), bias, updates)


class ColumnParallelLinear(Linear):
    """A linear layer whose outputs are split over the group.

    It is the first of two linear layers: its outputs are the inputs of a RowParallelLinear. Parameters: weight
    [out_features, in_features], bias [out_features].

    stacked: part name -> number of outputs, if the outputs are several concatenated vectors that `forward` splits, such
        as a value and its gate: then each rank has its share of each vector. Without it, the results of such a model on
        two ranks are wrong.

    Raises ParameterError if the group does not divide the outputs.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        stacked: dict[str, int] | None = None,
        group: ParallelGroup,
    ) -> None:
        sizes = stacked or {WHOLE: out_features}
        own = {part: group.share(size, "outputs (of its feed-forward network, say)") for part, size in sizes.items()}
        super().__init__(in_features, sum(own.values()), bias, own if stacked else None, _shards(sizes, group))


class RowParallelLinear(Linear):
    """A linear layer whose inputs are split over the group, and whose products are all-reduced.

    Raises ParameterError if the group does not divide the inputs.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, *, group: ParallelGroup) -> None:
        own = group.share(in_features, "inputs (of its feed-forward network, say)")
        shards = {WHOLE: group.shard(in_features, dim=1)} if group.size > 1 else None
        super().__init__(own, out_features, bias, shards=shards)
        self._group = group

    @property
    def is_whole(self) -> bool:
        """True if its result is ``x @ weight.T + bias``, without parts of other ranks."""
        return self._group.size == 1

    @property
    def is_plain(self) -> bool:
        """True if its result is ``x @ weight.T + bias`` of unpacked parameters on this rank."""
        return self.is_whole and self.packed is None

    def forward(self, x: Tensor) -> Tensor:
        """x: [tokens, in], this rank's. Returns [tokens, out], the same on every rank."""
        if self._group.size == 1:
            return self.adapted(x, matmul(x, self.packed or self.weight, self.bias))
        total = self._group.all_reduce(self.adapted(x, matmul(x, self.packed or self.weight)))
        return total if self.bias is None else total.add_(self.bias)


def _shards(sizes: dict[str, int], group: ParallelGroup) -> dict[str, Shard] | None:
    """Return the rank's shards of rows. sizes: part name -> number of rows of all ranks."""
    return {part: group.shard(size, dim=0) for part, size in sizes.items()} if group.size > 1 else None


class QKVParallelLinear(Linear):
    """Query, key and value projections of self-attention as one matrix; parts ``q``, ``k``, ``v``.

    num_heads, num_kv_heads: of all ranks; the attributes with these names are this rank's.

    Raises ParameterError if the group does not divide them.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        head_dim: int,
        *,
        num_kv_heads: int | None = None,
        bias: bool = True,
        group: ParallelGroup,
    ) -> None:
        num_kv_heads = num_kv_heads or num_heads
        self.num_heads = group.share(num_heads, "heads")
        self.num_kv_heads = group.share(num_kv_heads, "heads of keys and values")
        self.head_dim = head_dim
        q_size, kv_size = self.num_heads * head_dim, self.num_kv_heads * head_dim
        whole = {"q": num_heads * head_dim, "k": num_kv_heads * head_dim, "v": num_kv_heads * head_dim}
        super().__init__(
            hidden_size,
            q_size + 2 * kv_size,
            bias,
            stacked={"q": q_size, "k": kv_size, "v": kv_size},
            shards=_shards(whole, group),
        )
        self.q_size = q_size

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # type: ignore[override]
        """x: [tokens, hidden]. Returns query [tokens, heads, head_dim], key and value [tokens, kv_heads, head_dim]."""
        heads = [self.num_heads, self.num_kv_heads, self.num_kv_heads]
        q, k, v = super().forward(x).unflatten(-1, (-1, self.head_dim)).split_with_sizes(heads, dim=1)
        return q, k, v


class EncoderDecoderQKVParallelLinear(QKVParallelLinear):
    """Projections of cross-attention: Q of the decoder's tokens, K and V of the encoder's output.

    One stacked matrix as in self-attention, with the same parts in a checkpoint. `query` multiplies the rows of Q,
    `keys_and_values` the others.
    """

    def query(self, x: Tensor) -> Tensor:
        """x: [tokens, hidden], the decoder's. Returns [tokens, heads, head_dim]."""
        query = self.adapted(x, matmul(x, self.packed or self.weight, self.bias, slice(self.q_size)))
        return query.unflatten(-1, (-1, self.head_dim))

    def keys_and_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x: [encoder_tokens, hidden], the encoder's output. Returns both, [encoder_tokens, kv_heads, head_dim]."""
        parts = slice(self.q_size, None)
        projected = matmul(x, self.packed or self.weight, self.bias, parts, of_encoder=True)
        projected = self.adapted(x, projected, self.q_size)
        key, value = projected.unflatten(-1, (-1, self.head_dim)).chunk(2, dim=1)
        return key, value
