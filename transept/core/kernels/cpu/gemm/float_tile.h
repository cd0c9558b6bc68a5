// The microkernel of products in float32. The sums of a few rows by one or two panels stay in registers.
#pragma once

#include "../isa.h"
#include "blocking.h"
#include "outer_product.h"

namespace transept {

constexpr int PREFETCH_WEIGHTS = 8192;  // bytes ahead

// True if weights are prefetched for ROWS rows. With vectors of 8 numbers, one or two rows of float32 are faster without.
template <int ROWS, class Number>
constexpr bool PREFETCHES = ROWS <= ROWS_OF_FEW && (LANES == 16 || ROWS > 2 || sizeof(Number) < sizeof(float));

// out = a @ b, or out += a @ b.
//
//   a: [ROWS, depth], or if TRANSPOSED [depth, ROWS]; rows are a_stride numbers apart
//   b: [PANELS, depth, PANEL]; panels are b_stride numbers apart
//   out: [ROWS, PANELS * PANEL]; rows are out_stride numbers apart
template <int ROWS, int PANELS, bool TRANSPOSED, class Number>
INLINE void float_tile(const float* a, int64_t a_stride, const Number* b, int64_t b_stride, int64_t depth, float* out,
                       int64_t out_stride, bool overwrites) {
  constexpr int VECTORS = 2 * PANELS;
  Floats sums[ROWS][VECTORS] = {};
  add_outer_products<FloatUnits, TRANSPOSED>(a, a_stride, depth, sums, [&](int64_t step, int vector) INLINE_LAMBDA {
    const Number* from = b + (vector / 2) * b_stride + step * PANEL;
    if (PREFETCHES<ROWS, Number> && !TRANSPOSED && vector % 2 == 0) {
      prefetch<PANEL * sizeof(Number), PREFETCH_WEIGHTS>(from);
    }
    return load(from + (vector % 2) * LANES);
  });
  UNROLL for (int row = 0; row < ROWS; row++) {
    UNROLL for (int vector = 0; vector < VECTORS; vector++) {
      float* to = out + row * out_stride + vector * LANES;
      store(to, overwrites ? sums[row][vector] : load(to) + sums[row][vector]);
    }
  }
}

}  // namespace transept
