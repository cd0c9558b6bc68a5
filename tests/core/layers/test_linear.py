"""Linear layers against torch.nn.functional.linear."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from transept.core.layers.linear import (
    ColumnParallelLinear,
    EncoderDecoderQKVParallelLinear,
    Linear,
    QKVParallelLinear,
    RowParallelLinear,
    matmul,
)
from transept.core.parallel.group import ParallelGroup
from transept.errors import ParameterError

HIDDEN = 48
HEAD_DIM = 8
HEADS = [(6, None), (6, 6), (6, 2), (4, 1)]  # query heads, key and value heads
GROUP = ParallelGroup()


def randomize(layer: Linear) -> None:
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("rows", range(71))
@pytest.mark.parametrize("with_bias", [True, False])
def test_product_is_that_of_torch_for_any_number_of_rows(rows: int, with_bias: bool) -> None:
    x, weight = torch.randn(rows, HIDDEN), torch.randn(33, HIDDEN)
    bias = torch.randn(33) if with_bias else None
    product = matmul(x, weight, bias)
    assert product.is_contiguous()
    torch.testing.assert_close(product, F.linear(x, weight, bias), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 2, 32, 33])
@pytest.mark.parametrize("outputs", [1, 7])
def test_product_takes_slices_and_transposes(rows: int, outputs: int) -> None:
    wide = torch.randn(rows, 3 * HIDDEN)
    transposed = torch.randn(HIDDEN, rows).t()
    weight, bias = torch.randn(3 * outputs, HIDDEN)[outputs : 2 * outputs], torch.randn(3 * outputs)[:outputs]
    for x in (wide[:, HIDDEN : 2 * HIDDEN], transposed):
        product = matmul(x, weight, bias)
        assert product.is_contiguous()
        torch.testing.assert_close(product, F.linear(x, weight, bias), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rows", [1, 5, 40])
def test_product_keeps_half_precision(dtype: torch.dtype, rows: int) -> None:
    x, weight, bias = (torch.randn(shape, dtype=dtype) for shape in ((rows, HIDDEN), (9, HIDDEN), (9,)))
    product = matmul(x, weight, bias)
    assert product.dtype is dtype
    torch.testing.assert_close(
        product.double(), F.linear(x.double(), weight.double(), bias.double()), rtol=0.02, atol=0.1
    )


@pytest.mark.parametrize("layer_class", [ColumnParallelLinear, RowParallelLinear])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("rows", [1, 5, 40])
def test_layer_applies_its_weight_and_bias(
    layer_class: type[ColumnParallelLinear] | type[RowParallelLinear], with_bias: bool, rows: int
) -> None:
    layer = layer_class(HIDDEN, 20, with_bias, group=GROUP)
    randomize(layer)
    assert set(layer.state_dict()) == ({"weight", "bias"} if with_bias else {"weight"})
    assert layer.weight.shape == (20, HIDDEN)
    x = torch.randn(rows, HIDDEN)
    torch.testing.assert_close(layer(x), F.linear(x, layer.weight, layer.bias), rtol=1e-5, atol=1e-5)


def parts_of(layer: QKVParallelLinear) -> dict[str, tuple[Tensor, Tensor | None]]:
    return {
        part: (layer.weight[rows], None if layer.bias is None else layer.bias[layer.bias.parts[part]])
        for part, rows in layer.weight.parts.items()
    }


@pytest.mark.parametrize("layer_class", [QKVParallelLinear, EncoderDecoderQKVParallelLinear])
@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
def test_parts_divide_the_stacked_rows_in_order(
    layer_class: type[QKVParallelLinear], heads: int, kv_heads: int | None
) -> None:
    layer = layer_class(HIDDEN, heads, HEAD_DIM, num_kv_heads=kv_heads, group=GROUP)
    q, kv = heads * HEAD_DIM, (kv_heads or heads) * HEAD_DIM
    expected = {"q": slice(0, q), "k": slice(q, q + kv), "v": slice(q + kv, q + 2 * kv)}
    assert layer.bias is not None
    assert layer.weight.parts == layer.bias.parts == expected
    assert layer.weight.shape == (q + 2 * kv, HIDDEN)
    assert layer.bias.shape == (q + 2 * kv,)


@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("rows", [1, 5, 40])
def test_qkv_equals_three_projections(heads: int, kv_heads: int | None, with_bias: bool, rows: int) -> None:
    layer = QKVParallelLinear(HIDDEN, heads, HEAD_DIM, num_kv_heads=kv_heads, bias=with_bias, group=GROUP)
    randomize(layer)
    x = torch.randn(rows, HIDDEN)
    for projected, (weight, bias) in zip(layer(x), parts_of(layer).values(), strict=True):
        expected = F.linear(x, weight, bias).view(rows, -1, HEAD_DIM)
        torch.testing.assert_close(projected, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize(("rows", "encoder_rows"), [(1, 1), (5, 9), (1, 150), (40, 2)])
def test_cross_qkv_equals_three_projections(
    heads: int, kv_heads: int | None, with_bias: bool, rows: int, encoder_rows: int
) -> None:
    layer = EncoderDecoderQKVParallelLinear(HIDDEN, heads, HEAD_DIM, num_kv_heads=kv_heads, bias=with_bias, group=GROUP)
    randomize(layer)
    decoder_input, encoder_input = torch.randn(rows, HIDDEN), torch.randn(encoder_rows, HIDDEN)
    projected = layer.query(decoder_input), *layer.keys_and_values(encoder_input)
    inputs = (decoder_input, encoder_input, encoder_input)
    for x, out, (weight, bias) in zip(inputs, projected, parts_of(layer).values(), strict=True):
        expected = F.linear(x, weight, bias).view(len(x), -1, HEAD_DIM)
        torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
@pytest.mark.parametrize(("rows", "encoder_rows"), [(1, 0), (5, 0), (40, 0), (5, 9), (1, 150)])
def test_cross_qkv_multiplies_only_what_is_read(heads: int, kv_heads: int | None, rows: int, encoder_rows: int) -> None:
    layer = EncoderDecoderQKVParallelLinear(HIDDEN, heads, HEAD_DIM, num_kv_heads=kv_heads, group=GROUP)
    randomize(layer)
    layer.double()  # so that PyTorch multiplies, which counts
    with FlopCounterMode(display=False) as counter:
        layer.query(torch.randn(rows, HIDDEN, dtype=torch.float64))
        layer.keys_and_values(torch.randn(encoder_rows, HIDDEN, dtype=torch.float64))
    q, kv = heads * HEAD_DIM, (kv_heads or heads) * HEAD_DIM
    assert counter.get_total_flops() == 2 * HIDDEN * (rows * q + encoder_rows * 2 * kv)


@pytest.mark.parametrize(("rank", "size"), [(0, 0), (2, 2), (-1, 1)])
def test_a_rank_lies_in_its_group(rank: int, size: int) -> None:
    with pytest.raises(ParameterError, match="no rank"):
        ParallelGroup(rank, size)


def test_what_a_group_does_not_divide_is_refused() -> None:
    group = ParallelGroup(0, 4)
    with pytest.raises(ParameterError, match=r"=4 does not divide a layer's 6 heads, which these sizes do: 1, 2, 3, 6"):
        QKVParallelLinear(HIDDEN, 6, HEAD_DIM, group=group)
    with pytest.raises(ParameterError, match="2 heads of keys and values, which these sizes do: 1, 2"):
        QKVParallelLinear(HIDDEN, 8, HEAD_DIM, num_kv_heads=2, group=group)
    for layer_class in (ColumnParallelLinear, RowParallelLinear):
        with pytest.raises(ParameterError, match="does not divide a layer's 30 "):
            layer_class(30, 30, group=group)
