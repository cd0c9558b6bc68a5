// The microkernel of products of pairs: int16 by int8 or int16, whose sums are exact integers, and bfloat16 by bfloat16, whose
// sums are floats.
#pragma once

#include "../isa_pairs.h"
#include "float_tile.h"
#include "outer_product.h"

namespace transept {

// Call finish(row, vector, sums) for each vector of sums of a @ b.T.
//
//   a: [ROWS, depth], rows a_stride numbers apart, or if TRANSPOSED [depth / 2, ROWS, 2], rows a_stride pairs apart; depth is
//      even
//   b: [PANELS, depth / 2, PANEL, 2]
template <int ROWS, int PANELS, bool TRANSPOSED = false, class RowNumber, class Number, class Finish>
INLINE void pair_tile(const RowNumber* a, int64_t a_stride, int64_t depth, const Number* b, const Finish& finish) {
  constexpr int VECTORS = 2 * PANELS;
  typename PairUnits<RowNumber>::Sums sums[ROWS][VECTORS] = {};
  add_outer_products<PairUnits<RowNumber>, TRANSPOSED>(a, a_stride, depth / 2, sums, [&](int64_t pair, int vector) INLINE_LAMBDA {
    const Number* from = b + (vector / 2) * depth * PANEL + pair * 2 * PANEL;
    if (ROWS <= ROWS_OF_FEW && vector % 2 == 0) prefetch<2 * PANEL * sizeof(Number), PREFETCH_WEIGHTS>(from);
    return load_shorts(from + (vector % 2) * 2 * LANES);
  });
  UNROLL for (int row = 0; row < ROWS; row++) {
    UNROLL for (int vector = 0; vector < VECTORS; vector++) finish(row, vector, sums[row][vector]);
  }
}

// out = (a @ b.T) * row_scales * output_scales, with a and b of integers.
//
//   row_scales: [ROWS], output_scales: [PANELS * PANEL]
//   out: [ROWS, PANELS * PANEL], rows out_stride numbers apart
template <int ROWS, int PANELS, bool TRANSPOSED = false, class Number>
INLINE void integer_tile(const int16_t* a, int64_t a_stride, int64_t depth, const Number* b, const float* row_scales,
                         const float* output_scales, float* out, int64_t out_stride) {
  pair_tile<ROWS, PANELS, TRANSPOSED>(a, a_stride, depth, b, [&](int row, int vector, Ints sums) INLINE_LAMBDA {
    Floats scaled = to_floats(sums) * broadcast(row_scales[row]);
    store(out + row * out_stride + vector * LANES, scaled * load(output_scales + vector * LANES));
  });
}

// out = a @ b.T, or out += a @ b.T, with a and b of bfloat16.
template <int ROWS, int PANELS, bool TRANSPOSED = false>
INLINE void bfloat16_tile(const BFloat16* a, int64_t a_stride, int64_t depth, const BFloat16* b, float* out,
                          int64_t out_stride, bool overwrites) {
  pair_tile<ROWS, PANELS, TRANSPOSED>(a, a_stride, depth, b, [&](int row, int vector, Floats sums) INLINE_LAMBDA {
    float* to = out + row * out_stride + vector * LANES;
    store(to, overwrites ? sums : load(to) + sums);
  });
}

}  // namespace transept
