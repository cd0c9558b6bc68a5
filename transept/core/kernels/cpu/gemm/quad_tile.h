// The dot-product microkernel of rows in int8. QUAD_OFFSET is added to weights: rows have a sign, and most processors' weights
// have none. Sums are integers, so they are the same on every processor.
#pragma once

#include "../isa_pairs.h"
#include "blocking.h"
#include "outer_product.h"
#include "rounding.h"

namespace transept {

#if defined(HAS_DOT_QUADS)
typedef int8_t RowOfQuads;
#else
typedef int16_t RowOfQuads;  // of each four numbers the first and third, then the second and fourth
#endif

constexpr int QUAD_STEPS = 127;   // the largest number with a sign

// Round `size` numbers to QUAD_STEPS steps either way, padded with zeros to `depth`. Returns the step, and in `offset`
// QUAD_OFFSET times the sum of the rounded numbers.
inline float round_row_to_quads(const float* row, int64_t size, RowOfQuads* to, int64_t depth, int32_t& offset) {
  const float step = round_row(row, size, to, depth, QUAD_STEPS);
  int32_t sum = 0;
  for (int64_t i = 0; i < depth; i++) sum += to[i];
  offset = QUAD_OFFSET * sum;
  if (sizeof(RowOfQuads) == 2) {
    for (int64_t i = 0; i < depth; i += 4) std::swap(to[i + 1], to[i + 2]);
  }
  return step;
}

// Call finish(row, vector, sums) for each vector of sums of a @ b.T.
//
//   a: [ROWS, depth], rows a_stride numbers apart, or if TRANSPOSED [depth / 4, ROWS, 4], rows a_stride quads apart; depth is
//      a multiple of 4
//   b: [PANELS, depth / 4, PANEL, 4]
template <int ROWS, int PANELS, bool TRANSPOSED = false, class Finish>
INLINE void quad_tile(const RowOfQuads* a, int64_t a_stride, int64_t depth, const uint8_t* b, const Finish& finish) {
  constexpr int VECTORS = 2 * PANELS;
  Ints sums[ROWS][VECTORS] = {};
#if defined(HAS_DOT_QUADS)
  add_outer_products<QuadUnits, TRANSPOSED>(a, a_stride, depth / 4, sums, [&](int64_t quad, int vector) INLINE_LAMBDA {
    return load_as<Ints>(b + (vector / 2) * depth * PANEL + quad * 4 * PANEL + (vector % 2) * 4 * LANES);
  });
#else
  const RowOfQuads* rows[(ROWS + 2) / 3];  // see outer_product.h
  UNROLL for (int three = 0; three < (ROWS + 2) / 3; three++) {
    rows[three] = a + 3 * three * a_stride;
    asm("" : "+r"(rows[three]));
  }
  for (int64_t step = 0; step < depth; step += 4) {
    UNROLL for (int half = 0; half < 2; half++) {
      Shorts parts[VECTORS];
      UNROLL for (int vector = 0; vector < VECTORS; vector++) {
        const uint8_t* from = b + (vector / 2) * depth * PANEL + step * PANEL;
        const Words fours = load_as<Words>(from + (vector % 2) * 4 * LANES);
        parts[vector] = bits_as<Shorts>((half == 0 ? fours : fours >> 8) & 0x00ff00ff);
      }
      UNROLL for (int row = 0; row < ROWS; row++) {
        int32_t pair;
        memcpy(&pair, (TRANSPOSED ? a + step * a_stride + 4 * row : rows[row / 3] + row % 3 * a_stride) + 2 * half, 4);
        UNROLL for (int vector = 0; vector < VECTORS; vector++) {
          sums[row][vector] = dot_pairs(sums[row][vector], bits_as<Shorts>(broadcast(pair)), parts[vector]);
        }
      }
    }
    UNROLL for (int three = 0; three < (ROWS + 2) / 3; three++) rows[three] += 4;
  }
#endif
  UNROLL for (int row = 0; row < ROWS; row++) {
    UNROLL for (int vector = 0; vector < VECTORS; vector++) finish(row, vector, sums[row][vector]);
  }
}

}  // namespace transept
