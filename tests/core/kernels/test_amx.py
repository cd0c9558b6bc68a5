"""By AMX: products as near as float32's own, in int8 the same integers, in bfloat16 the product of rounded numbers;
attention in bfloat16, and feed-forward networks that are the two products to the last bit.

On a processor with AMX they are tried as they are; on others with AVX-512 the same code runs on emulated tiles.
"""

import ctypes
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import transept.core.kernels.cpu as cpu
from transept.core.kernels.cpu.attention import encoder_attention
from transept.core.kernels.cpu.fused import feed_forward
from transept.core.kernels.cpu.fused.decoder_layer import Projection
from transept.core.kernels.cpu.gemm import panels, product
from transept.core.kernels.cpu.gemm.panels import (
    WeightPanels,
    pack_bfloat16,
    pack_floats,
    pack_int8,
    pack_int8_for_int8,
)
from transept.core.kernels.cpu.library import Float, Int, Pointer, level, library

# Of gemm/amx.cpp: rows of a block, bfloat16 and int8 of a tile's row, inputs of a pass, rows of a piece; and how many
# rows in int8 do not go to AMX.
BLOCK, DEPTH, BYTES_DEEP, PASS, ROWS, FEW = 32, 32, 64, 512, 384, 8
DEPTHS = [DEPTH, 3 * DEPTH, PASS, 2 * PASS + DEPTH]
AVX512 = [f"-mavx512{part}" for part in ("f", "bw", "cd", "dq", "vl")]
FLAGS = ["-std=c++17", "-O2", "-fPIC", "-shared", "-w", "-mavx2", "-mfma", "-mf16c", *AVX512]
FLAGS.append('-DISA_HEADER="isa/avx512.h"')
SOURCES = (
    "library.cpp",
    "elementwise/rows.cpp",
    *(f"gemm/{name}.cpp" for name in ("amx", "bfloat16_gemm", "byte_gemm", "float_gemm", "int8_gemm", "product")),
    *("gemm/packing.cpp", "gemm/unpacking.cpp", "fused/feed_forward.cpp"),
    *("attention/encoder_attention.cpp", "attention/amx_encoder_attention.cpp"),
)

Product = Callable[..., Tensor]  # of x, weight, bias and, maybe, activation


@pytest.fixture(scope="module")
def amx(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    if level() == "amx":
        return library()
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    if not level().startswith("avx512") or shutil.which(compiler[0]) is None:
        pytest.skip("there is no AMX, and no AVX-512 or no compiler to emulate it with")
    made = tmp_path_factory.mktemp("amx") / "emulated.so"
    sources = [str(Path(cpu.__file__).parent / name) for name in SOURCES]
    vnni = [] if level() == "avx512" else ["-mavx512vnni"]
    subprocess.run([*compiler, *FLAGS, *vnni, "-DTRANSEPT_EMULATE_AMX", *sources, "-o", str(made)], check=True)
    return ctypes.CDLL(str(made))


def bound(library: ctypes.CDLL, name: str) -> Product:
    kernel = library[name]
    kernel.argtypes, kernel.restype = [*[Pointer, Int], *[Pointer] * 2, Int, Pointer], None
    return product.Product(kernel)


@pytest.fixture(scope="module")
def float_product(amx: ctypes.CDLL) -> Product:
    return bound(amx, "transept_float_product_by_amx")


@pytest.fixture(scope="module")
def int8_product(amx: ctypes.CDLL) -> Product:
    return bound(amx, "transept_product")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def root_mean_square(x: Tensor) -> float:
    return x.double().square().mean().sqrt().item()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("num_rows", [1, BLOCK, BLOCK + 1, ROWS, ROWS + 50])
@pytest.mark.parametrize("num_in", DEPTHS)
@pytest.mark.parametrize("num_out", [5, BLOCK, 100])
def test_float32_is_no_less_exact_than_pytorch(
    float_product: Product, num_rows: int, num_in: int, num_out: int
) -> None:
    x = torch.randn(num_rows, num_in) * torch.logspace(-3, 3, num_rows)[:, None]
    weight, bias = torch.randn(num_out, num_in).half().float(), torch.randn(num_out)
    packed = pack_floats(weight, torch.float16)
    expected = x.double() @ weight.double().T
    for added in (None, bias):
        exact = expected if added is None else expected + added.double()
        error = float_product(x, packed, added).double() - exact
        assert root_mean_square(error / exact.norm(dim=1, keepdim=True)) < 1e-6
        if num_rows * num_out > 1000:  # enough for a mean
            theirs = F.linear(x, weight, added).double() - exact
            assert root_mean_square(error) <= 1.2 * root_mean_square(theirs)


@pytest.mark.parametrize("num_rows", [5, ROWS + 50])
def test_activations(float_product: Product, int8_product: Product, num_rows: int) -> None:
    x, weight, bias = torch.randn(num_rows, 2 * PASS), torch.randn(100, 2 * PASS).half().float(), torch.randn(100)
    products = [(float_product, pack_floats(weight, torch.float16))]
    products += [(int8_product, pack(weight)) for pack in (pack_int8, pack_int8_for_int8, pack_bfloat16)]
    for product_of, packed in products:
        right = F.gelu(product_of(x, packed, bias))
        torch.testing.assert_close(product_of(x, packed, bias, "gelu"), right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("num_in", DEPTHS)
def test_a_row_is_the_same_to_the_last_bit_whatever_is_beside_it(float_product: Product, num_in: int) -> None:
    x, bias = torch.randn(ROWS + 70, num_in), torch.randn(150)
    packed = pack_floats(torch.randn(150, num_in).half(), torch.float16)
    together = float_product(x, packed, bias)
    for rows in (slice(0, 1), slice(3, 40), slice(ROWS - 1, ROWS + 1), slice(ROWS + 69, None)):
        assert torch.equal(float_product(x[rows], packed, bias), together[rows])


def test_numbers_of_all_sizes(float_product: Product) -> None:
    weight = torch.tensor([[1.0], [-65504.0], [6e-8], [0.0]]).half().float().repeat(1, DEPTH)
    x = torch.tensor([[0.0], [1e30], [-3.0], [1e-20]]).repeat(1, DEPTH)
    out = float_product(x, pack_floats(weight, torch.float16), None)
    torch.testing.assert_close(out.double(), x.double() @ weight.double().T, rtol=1e-6, atol=0)
    x[1, 3], x[2, 5] = float("inf"), float("nan")
    out = float_product(x, pack_floats(weight, torch.float16), None)
    assert out.isfinite().all(1).tolist() == [True, False, False, True]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("num_rows", [FEW + 1, FEW + BLOCK, 200, 300])
@pytest.mark.parametrize("num_in", [BYTES_DEEP, 5 * BYTES_DEEP, 512])
@pytest.mark.parametrize("num_out", [5, BLOCK, 333])
@pytest.mark.parametrize("pack", [pack_int8, pack_int8_for_int8])
def test_int8_gives_the_same_bits_as_the_tiles_for_few_rows(
    int8_product: Product, num_rows: int, num_in: int, num_out: int, pack: Callable[[Tensor], WeightPanels]
) -> None:
    x, bias = torch.randn(num_rows, num_in) * torch.logspace(-3, 3, num_rows)[:, None], torch.randn(num_out)
    x[5] = 0
    packed = pack(torch.randn(num_out, num_in))
    for added in (None, bias):
        few = torch.cat([product.product(part, packed, added) for part in x.split(FEW)])
        assert torch.equal(int8_product(x, packed, added), few)


def test_int8_of_the_largest_numbers(int8_product: Product) -> None:
    x = torch.cat([torch.ones(60, 1024), -torch.ones(60, 1024)])
    packed = pack_int8(torch.cat([torch.ones(40, 1024), -torch.ones(40, 1024)]))
    few = torch.cat([product.product(part, packed, None) for part in x.split(FEW)])
    assert torch.equal(int8_product(x, packed, None), few)
    torch.testing.assert_close(few.abs(), torch.full((120, 80), 1024.0), rtol=1e-3, atol=0)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("num_rows", [1, BLOCK + 1, 300])
@pytest.mark.parametrize("num_in", DEPTHS)
@pytest.mark.parametrize("num_out", [5, BLOCK, 300])
def test_bfloat16_is_the_product_of_rounded_numbers(amx: ctypes.CDLL, num_rows: int, num_in: int, num_out: int) -> None:
    bfloat16_product = bound(amx, "transept_product")
    x, weight, bias = torch.randn(num_rows, num_in), torch.randn(num_out, num_in), torch.randn(num_out)
    packed = pack_bfloat16(weight)
    for added in (None, bias):
        out = bfloat16_product(x, packed, added)
        exact = x.bfloat16().double() @ weight.bfloat16().double().T + (0 if added is None else added.double())
        torch.testing.assert_close(out.double(), exact, rtol=1e-5, atol=1e-4)
        for row in (0, num_rows // 2, num_rows - 1):  # and the same bits, whatever is beside it
            assert torch.equal(bfloat16_product(x[row : row + 1], packed, added)[0], out[row])


def test_bfloat16_of_inputs_that_fill_no_tile(amx: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, types in (
        ("whole_pairs", [Int]),
        ("pack_bfloat16", [Pointer, Int, Int, Int, Pointer]),
        ("weight_rows", [Pointer, Pointer, Int, Pointer, Int, Pointer, Pointer]),
    ):
        function = amx[f"transept_{name}"]
        function.argtypes, function.restype = types, Int
        monkeypatch.setattr(panels, f"_{name}", function)
    bfloat16_product = bound(amx, "transept_product")
    for num_in in (1, 31, 240):
        x, weight = torch.randn(40, num_in), torch.randn(70, num_in)
        packed = pack_bfloat16(weight)
        exact = x.bfloat16().double() @ weight.bfloat16().double().T
        torch.testing.assert_close(bfloat16_product(x, packed, None).double(), exact, rtol=1e-5, atol=1e-4)
        assert torch.equal(packed.rows(torch.tensor([69])), weight[69:].bfloat16().float())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("tokens", [1, 31, 128, 129, 300])
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(1, 1, 64), (4, 2, 40), (2, 2, 80), (1, 1, 130)])
@pytest.mark.parametrize("with_bias", [False, True])
def test_attention_in_bfloat16(
    amx: ctypes.CDLL, tokens: int, heads: int, kv_heads: int, dim: int, with_bias: bool
) -> None:
    kernel = amx["transept_attend_sequence_in_bfloat16"]
    kernel.argtypes, kernel.restype = [Pointer, Float], None
    query, key, value = torch.randn(tokens, heads, dim), *torch.randn(2, tokens, kv_heads, dim)
    bias = torch.randn(heads, 2 * tokens - 1) if with_bias else None
    out, places = torch.full(query.shape, float("nan")), torch.arange(tokens)
    encoder_attention.EncoderAttention(kernel)(query, key, value, dim**-0.5, out, bias)
    mask = None if bias is None else bias.double()[:, places[:, None] - places + tokens - 1]
    q, k, v = (x.bfloat16().double().transpose(0, 1) for x in (query, key, value))
    right = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True).transpose(0, 1)
    assert root_mean_square(out.double() - right) < 0.005 * root_mean_square(right)


@pytest.mark.parametrize(("hidden", "inner"), [(64, 64), (192, 1088)])
@pytest.mark.parametrize("num_rows", [1, BLOCK, 300])
@pytest.mark.parametrize("pack", [pack_bfloat16, pack_int8_for_int8])
def test_a_feed_forward_network_is_its_two_products(
    amx: ctypes.CDLL,
    monkeypatch: pytest.MonkeyPatch,
    hidden: int,
    inner: int,
    num_rows: int,
    pack: Callable[[Tensor], WeightPanels],
) -> None:
    if level() == "avx512" and pack is pack_int8_for_int8:
        pytest.skip("rows of four numbers of 8 bits take VNNI")
    kernel = amx["transept_add_feed_forward"]
    kernel.argtypes, kernel.restype = [Pointer, Int, Pointer, Pointer], None
    monkeypatch.setattr(feed_forward, "_add_feed_forward", kernel)
    product_of = bound(amx, "transept_product")
    x, normed = torch.randn(2, num_rows, hidden)
    fc1 = Projection(pack(torch.randn(inner, hidden)), torch.randn(inner))
    fc2 = Projection(pack(torch.randn(hidden, inner)), torch.randn(hidden))
    network = feed_forward.FeedForwardKernel(fc1, fc2, "gelu")
    right = x + product_of(product_of(normed, fc1.weight, fc1.bias, "gelu"), fc2.weight, fc2.bias)
    assert torch.equal(network(x, normed), right)


def test_feed_forward_networks_without_a_kernel() -> None:
    def projection(outputs: int, inputs: int, pack: Callable[[Tensor], WeightPanels] = pack_bfloat16) -> Projection:
        return Projection(pack(torch.zeros(outputs, inputs)), None)

    with pytest.raises(IndexError, match=r"from \[64, 96, 64, 64\] in torch.bfloat16 has no kernel"):
        feed_forward.FeedForwardKernel(projection(96, 64), projection(64, 64), "gelu")
    with pytest.raises(IndexError, match="has no kernel"):  # of 100 inputs
        feed_forward.FeedForwardKernel(projection(64, 100), projection(100, 64), "gelu")
    with pytest.raises(IndexError, match=r"a bias of \[5\] is not that of 64 outputs"):
        feed_forward.FeedForwardKernel(
            Projection(projection(64, 64).weight, torch.zeros(5)), projection(64, 64), "relu"
        )
    assert not feed_forward.FeedForwardKernel.serves(projection(64, 64, pack_int8), projection(64, 64, pack_int8))
    network = feed_forward.FeedForwardKernel(projection(96, 64), projection(64, 96), "relu")
    for x, normed in ((torch.zeros(3, 64), torch.zeros(3, 63)), (torch.zeros(64, 3).t(), torch.zeros(3, 64))):
        with pytest.raises(IndexError, match="do not fit a network from 64 to 64"):
            network(x, normed)
