// The microkernel of products in float32: sums of a few rows by one or two panels, which stay in registers while a column
// of the rows times a row of the panels is added to them, step by step.
#pragma once

#include "../simd.h"
#include "blocking.h"

namespace transept {

constexpr int PREFETCH_WEIGHTS = 8192;  // bytes ahead

// Whether weights are prefetched for some rows. With vectors of 8 numbers one or two rows read float32 faster without it.
template <int ROWS, class Number>
constexpr bool PREFETCHES = ROWS <= ROWS_OF_FEW && (LANES == 16 || ROWS > 2 || sizeof(Number) < sizeof(float));

// out = a @ b, or out += a @ b.
//
//   a: rows of `depth` numbers, `a_stride` apart, or if TRANSPOSED depth rows of ROWS numbers, a_stride apart
//   b: [depth, PANEL] for each panel, the second one b_stride numbers after the first
//   out: rows of PANELS * PANEL numbers, out_stride apart
//
// A sum is over one product after the other, whatever ROWS is.
template <int ROWS, int PANELS, bool TRANSPOSED, class Number>
INLINE void float_tile(const float* a, int64_t a_stride, const Number* b, int64_t b_stride, int64_t depth, float* out,
                       int64_t out_stride, bool overwrites) {
  constexpr int VECTORS = 2 * PANELS;
  Floats sums[ROWS][VECTORS] = {};
  // Of three rows each, of which an instruction reaches the second and third by the stride: 12 rows in 5 registers.
  const float* rows[(ROWS + 2) / 3];
  UNROLL for (int three = 0; three < (ROWS + 2) / 3; three++) {
    rows[three] = a + 3 * three * a_stride;
    asm("" : "+r"(rows[three]));  // the compiler is not to add up the rows' distances in the loop
  }
  for (int64_t step = 0; step < depth; step++) {
    Floats parts[VECTORS];
    UNROLL for (int vector = 0; vector < VECTORS; vector++) {
      const Number* from = b + (vector / 2) * b_stride + step * PANEL;
      if (PREFETCHES<ROWS, Number> && !TRANSPOSED && vector % 2 == 0) {
        prefetch<PANEL * sizeof(Number), PREFETCH_WEIGHTS>(from);
      }
      parts[vector] = load(from + (vector % 2) * LANES);
    }
    UNROLL for (int row = 0; row < ROWS; row++) {
      Floats factor = broadcast(TRANSPOSED ? a[step * a_stride + row] : rows[row / 3][row % 3 * a_stride]);
      UNROLL for (int vector = 0; vector < VECTORS; vector++) sums[row][vector] += factor * parts[vector];
    }
    UNROLL for (int three = 0; three < (ROWS + 2) / 3; three++) rows[three]++;
  }
  UNROLL for (int row = 0; row < ROWS; row++) {
    UNROLL for (int vector = 0; vector < VECTORS; vector++) {
      float* to = out + row * out_stride + vector * LANES;
      store(to, overwrites ? sums[row][vector] : load(to) + sums[row][vector]);
    }
  }
}

}  // namespace transept
