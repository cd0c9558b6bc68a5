// The loop of the microkernels whose lanes multiply four bytes of a row at a time: a float, or four numbers of int8.
#pragma once

#include <type_traits>

#include "../isa.h"

namespace transept {

// Add a @ b to sums, which stay in registers: each step adds the outer product of a column of the rows and a row of the panels.
//
//   a: [ROWS, units, SIZE], rows a_stride numbers apart, or if TRANSPOSED [units, ROWS, SIZE], steps a_stride units apart
//   load_part(step, vector): a vector of the panels' numbers
//
// A sum adds one product after the other, so it does not depend on ROWS.
template <class Units, bool TRANSPOSED, int ROWS, int VECTORS, class Number, class LoadPart>
INLINE void add_outer_products(const Number* a, int64_t a_stride, int64_t units,
                               typename Units::Sums (&sums)[ROWS][VECTORS], const LoadPart& load_part) {
  constexpr int UNIT = Units::SIZE, AT_ONCE = Units::STEPS;
  typedef typename Units::Sums Sums;
  // One pointer for three rows: an instruction reaches the second and the third by the stride, so 12 rows need 5 registers.
  const Number* rows[(ROWS + 2) / 3];
  UNROLL for (int three = 0; three < (ROWS + 2) / 3; three++) {
    rows[three] = a + 3 * three * a_stride;
    asm("" : "+r"(rows[three]));  // keeps the compiler from adding up distances in the loop
  }
  const auto add = [&](int64_t step, auto constant) INLINE_LAMBDA {
    constexpr int STEPS = decltype(constant)::value;
    decltype(load_part(step, 0)) parts[STEPS][VECTORS];
    UNROLL for (int i = 0; i < STEPS * VECTORS; i++) {
      parts[i / VECTORS][i % VECTORS] = load_part(step + i / VECTORS, i % VECTORS);
    }
    const Number* column = a + step * a_stride * UNIT;
    UNROLL for (int row = 0; row < ROWS; row++) {
      const Number* from = TRANSPOSED ? column + row * UNIT : rows[row / 3] + row % 3 * a_stride;
      if (TRANSPOSED ? row >= ROWS / AT_ONCE * AT_ONCE : STEPS < AT_ONCE) {  // a unit that is loaded alone
        if constexpr (AT_ONCE > 1) {
          const auto unit = Units::broadcast(from);
          UNROLL for (int vector = 0; vector < VECTORS; vector++) {
            sums[row][vector] = Units::add(sums[row][vector], unit, parts[0][vector]);
          }
        }
      } else if (!TRANSPOSED || row % AT_ONCE == 0) {
        const auto several = Units::load(from);
        UNROLL for (int i = 0; i < AT_ONCE * VECTORS; i++) {
          Sums& sum = sums[TRANSPOSED ? row + i / VECTORS : row][i % VECTORS];
          sum = Units::add(sum, several, i / VECTORS, parts[TRANSPOSED ? 0 : i / VECTORS][i % VECTORS]);
        }
      }
    }
    UNROLL for (int three = 0; three < (ROWS + 2) / 3; three++) rows[three] += STEPS * UNIT;
  };
  constexpr int STEPS = TRANSPOSED ? 1 : AT_ONCE;
  int64_t step = 0;
  for (; step + STEPS <= units; step += STEPS) add(step, std::integral_constant<int, STEPS>{});
  if (STEPS > 1 && step < units) add(step, std::integral_constant<int, 1>{});
}

}  // namespace transept
