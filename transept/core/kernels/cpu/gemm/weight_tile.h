// The microkernels of products with weights in int8, for rows in int8, and in bfloat16: products of matrices if the processor
// has them, else dot products.
//
// Products of matrices multiply two rows at a time, so rows lie in pairs, [pairs of rows, groups of inputs, 2, inputs of a group].
// The missing row of the last pair has any numbers, which affect no other row.
#pragma once

#include "../scratch.h"
#include "groups.h"
#include "pair_tile.h"
#include "quad_tile.h"

namespace transept {

// Rows as tiles read them: `depth` numbers each, `distance` apart.
template <class Number>
struct TileRows {
  Number* numbers;
  int64_t distance, depth;

  // Return how many numbers so many rows take.
  static int64_t size(int64_t rows, int64_t distance) { return (rows + rows % 2) * distance; }

  // Call round(to) to write a row.
  template <class Round>
  void put(int64_t row, const Round& round) const {
    if constexpr (MULTIPLIES_MATRICES) {
      constexpr int GROUP = 8 / sizeof(Number);
      Number* rounded = scratch<Use::WEIGHTS, Number>(depth);
      round(rounded);
      Number* to = numbers + row / 2 * 2 * distance + row % 2 * GROUP;
      for (int64_t i = 0; i < depth; i += GROUP) memcpy(to + 2 * i, rounded + i, GROUP * sizeof(Number));
    } else {
      round(numbers + row * distance);
    }
  }
};

#if defined(HAS_MATRIX_PRODUCTS)

// Call finish(row, vector, sums) for each vector of sums of some rows by panels. ROWS is 1 if the first row is the second of its
// pair. b: [PANELS, groups of inputs, PANEL, inputs of a group].
template <int ROWS, int PANELS, class Number, class Finish>
INLINE void matrix_tile(const TileRows<Number>& rows, int64_t row, const Number* b, const Finish& finish) {
  using Units = MatrixUnits<Number>;
  constexpr int PAIRS = (ROWS + 1) / 2, VECTORS = PANEL / 2;
  const Number* a = rows.numbers + row / 2 * 2 * rows.distance;
  const int64_t steps = rows.depth * 2 / Units::SIZE;
  for (int panel = 0; panel < PANELS; panel++, b += rows.depth * PANEL) {
    typename Units::Sums sums[PAIRS][VECTORS] = {};
    add_outer_products<Units, false>(a, 2 * rows.distance, steps, sums, [&](int64_t step, int vector) INLINE_LAMBDA {
      return Units::load(b + (step * VECTORS + vector) * Units::SIZE);
    });
    UNROLL for (int i = 0; i < ROWS; i++) {
      UNROLL for (int half = 0; half < 2; half++) {
        const auto &first = sums[i / 2][2 * half], &second = sums[i / 2][2 * half + 1];
        finish(i, 2 * panel + half, row_of_matrices(first, second, ROWS == 1 ? (int)(row % 2) : i % 2));
      }
    }
  }
}

template <int ROWS, int PANELS, class Finish>
INLINE void byte_tile(const TileRows<int8_t>& rows, int64_t row, const uint8_t* b, const Finish& finish) {
  matrix_tile<ROWS, PANELS>(rows, row, reinterpret_cast<const int8_t*>(b), finish);
}

template <int ROWS, int PANELS>
INLINE void bfloat16_weight_tile(const TileRows<BFloat16>& rows, int64_t row, const BFloat16* b, float* out,
                                 int64_t out_stride) {
  matrix_tile<ROWS, PANELS>(rows, row, b, [&](int row, int vector, Floats sums) INLINE_LAMBDA {
    store(out + row * out_stride + vector * LANES, sums);
  });
}

#else

template <int ROWS, int PANELS, class Finish>
INLINE void byte_tile(const TileRows<RowOfQuads>& rows, int64_t row, const uint8_t* b, const Finish& finish) {
  quad_tile<ROWS, PANELS>(rows.numbers + row * rows.distance, rows.distance, rows.depth, b, finish);
}

template <int ROWS, int PANELS>
INLINE void bfloat16_weight_tile(const TileRows<BFloat16>& rows, int64_t row, const BFloat16* b, float* out,
                                 int64_t out_stride) {
  bfloat16_tile<ROWS, PANELS>(rows.numbers + row * rows.distance, rows.distance, rows.depth, b, out, out_stride, true);
}

#endif

}  // namespace transept
