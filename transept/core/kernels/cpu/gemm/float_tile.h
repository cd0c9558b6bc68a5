// The microkernel of products in float32. The sums of a few rows by one or two panels stay in registers. Each step adds the
// outer product of a column of the rows and a row of the panels.
#pragma once

#include "../isa.h"
#include "blocking.h"

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
//
// A sum adds one product after the other, so it does not depend on ROWS.
template <int ROWS, int PANELS, bool TRANSPOSED, class Number>
INLINE void float_tile(const float* a, int64_t a_stride, const Number* b, int64_t b_stride, int64_t depth, float* out,
                       int64_t out_stride, bool overwrites) {
  constexpr int VECTORS = 2 * PANELS;
  Floats sums[ROWS][VECTORS] = {};
  // One pointer for three rows: an instruction reaches the second and the third by the stride, so 12 rows need 5 registers.
  const float* rows[(ROWS + 2) / 3];
  UNROLL for (int three = 0; three < (ROWS + 2) / 3; three++) {
    rows[three] = a + 3 * three * a_stride;
    asm("" : "+r"(rows[three]));  // keeps the compiler from adding up distances in the loop
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
