// The microkernel of products of int16 with int8 or int16. Its sums are integers, and so always the same; what is summed
// is made a float once, when it is stored.
#pragma once

#include "float_tile.h"

namespace transept {

// out = (a @ b.T) * row_scales * output_scales.
//
//   a: int16, ROWS rows of `depth` numbers, one after the other; depth is even
//   b: int8 or int16, for each panel [depth / 2, PANEL, 2]: pairs of numbers side by side
//   row_scales: [ROWS], output_scales: [PANELS * PANEL]
//   out: rows of PANELS * PANEL numbers, out_stride apart
template <int ROWS, int PANELS, class Number>
INLINE void integer_tile(const int16_t* a, int64_t depth, const Number* b, const float* row_scales,
                         const float* output_scales, float* out, int64_t out_stride) {
  constexpr int VECTORS = 2 * PANELS;
  Ints sums[ROWS][VECTORS] = {};
  const int16_t* rows[(ROWS + 2) / 3];  // see float_tile
  UNROLL for (int three = 0; three < (ROWS + 2) / 3; three++) {
    rows[three] = a + 3 * three * depth;
    asm("" : "+r"(rows[three]));
  }
  for (int64_t step = 0; step < depth; step += 2) {
    Shorts parts[VECTORS];
    UNROLL for (int vector = 0; vector < VECTORS; vector++) {
      const Number* from = b + (vector / 2) * depth * PANEL + step * PANEL;
      if (ROWS <= ROWS_OF_FEW && vector % 2 == 0) prefetch<2 * PANEL * sizeof(Number), PREFETCH_WEIGHTS>(from);
      parts[vector] = load_shorts(from + (vector % 2) * 2 * LANES);
    }
    UNROLL for (int row = 0; row < ROWS; row++) {
      int32_t pair;
      memcpy(&pair, rows[row / 3] + row % 3 * depth, 4);
      Shorts pairs = bits_as<Shorts>(broadcast(pair));
      UNROLL for (int vector = 0; vector < VECTORS; vector++) {
        sums[row][vector] = add_products_of_pairs(sums[row][vector], pairs, parts[vector]);
      }
    }
    UNROLL for (int three = 0; three < (ROWS + 2) / 3; three++) rows[three] += 2;
  }
  UNROLL for (int row = 0; row < ROWS; row++) {
    UNROLL for (int vector = 0; vector < VECTORS; vector++) {
      Floats scaled = to_floats(sums[row][vector]) * broadcast(row_scales[row]);
      store(out + row * out_stride + vector * LANES, scaled * load(output_scales + vector * LANES));
    }
  }
}

}  // namespace transept
