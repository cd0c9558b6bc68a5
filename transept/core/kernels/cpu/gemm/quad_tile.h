// The microkernel of products of numbers of 8 bits, which processors multiply four by four: rows with a sign, weights
// without. Sums are integers, the same on every processor.
#pragma once

#include "../pairs.h"
#include "blocking.h"
#include "rounding.h"

namespace transept {

#if defined(MULTIPLIES_QUADS)
typedef int8_t RowOfQuads;
#else
typedef int16_t RowOfQuads;  // of four numbers the first and the third, then the second and the fourth
#endif

constexpr int QUAD_STEPS = 127;    // of a number with a sign, either way
constexpr int QUAD_OFFSET = 128;  // of a number without one, to be taken from the sums again

// Round `size` numbers to QUAD_STEPS, filled up with zeros to `depth`. offset: QUAD_OFFSET times their sum. Returns the step.
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
//   a: ROWS rows of `depth` numbers, a_stride apart, or if TRANSPOSED depth / 4 rows of ROWS quads, a_stride quads apart;
//      depth is a multiple of 4
//   b: for each panel [depth / 4, PANEL, 4]: four numbers side by side
template <int ROWS, int PANELS, bool TRANSPOSED = false, class Finish>
INLINE void quad_tile(const RowOfQuads* a, int64_t a_stride, int64_t depth, const uint8_t* b, const Finish& finish) {
  constexpr int VECTORS = 2 * PANELS;
  Ints sums[ROWS][VECTORS] = {};
  const RowOfQuads* rows[(ROWS + 2) / 3];  // see float_tile
  UNROLL for (int three = 0; three < (ROWS + 2) / 3; three++) {
    rows[three] = a + 3 * three * a_stride;
    asm("" : "+r"(rows[three]));
  }
  for (int64_t step = 0; step < depth; step += 4) {
#if defined(MULTIPLIES_QUADS)
    Ints parts[VECTORS];
    UNROLL for (int vector = 0; vector < VECTORS; vector++) {
      parts[vector] = load_as<Ints>(b + (vector / 2) * depth * PANEL + step * PANEL + (vector % 2) * 4 * LANES);
    }
    UNROLL for (int row = 0; row < ROWS; row++) {
      int32_t four;
      memcpy(&four, TRANSPOSED ? a + step * a_stride + 4 * row : rows[row / 3] + row % 3 * a_stride, 4);
      UNROLL for (int vector = 0; vector < VECTORS; vector++) {
        sums[row][vector] = add_products_of_quads(sums[row][vector], parts[vector], broadcast(four));
      }
    }
#else
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
          sums[row][vector] = add_products_of_pairs(sums[row][vector], bits_as<Shorts>(broadcast(pair)), parts[vector]);
        }
      }
    }
#endif
    UNROLL for (int three = 0; three < (ROWS + 2) / 3; three++) rows[three] += 4;
  }
  UNROLL for (int row = 0; row < ROWS; row++) {
    UNROLL for (int vector = 0; vector < VECTORS; vector++) finish(row, vector, sums[row][vector]);
  }
}

}  // namespace transept
