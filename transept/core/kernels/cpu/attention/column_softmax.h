// The steps of a softmax down the columns of a matrix, rows of PANEL numbers: each column is a query, each row a key. A
// column in which a number is NaN becomes NaN. Minus infinity weighs 0, and so does a column of nothing else.
#pragma once

#include <limits>

#include "../elementwise/math.h"

namespace transept {

// The highest number of each column.
INLINE void column_highest(const float* scores, int64_t rows, float* tops) {
  Floats top[2] = {broadcast(-std::numeric_limits<float>::infinity())};
  top[1] = top[0];
  for (int64_t row = 0; row < rows; row++) {
    UNROLL for (int half = 0; half < 2; half++) top[half] = maximum(load(scores + row * PANEL + half * LANES), top[half]);
  }
  store(tops, top[0]);
  store(tops + LANES, top[1]);
}

// Raise 2 to each number less its column's top, in place, and add the results to totals.
INLINE void column_exp2(float* scores, int64_t rows, const float* tops, float* totals) {
  const Floats hidden = broadcast(-std::numeric_limits<float>::infinity());
  Floats base[2], total[2];
  UNROLL for (int half = 0; half < 2; half++) {
    const Floats top = load(tops + half * LANES);
    base[half] = select(top == hidden, Floats{}, top);
    total[half] = load(totals + half * LANES);
  }
  for (int64_t row = 0; row < rows; row++) {
    UNROLL for (int half = 0; half < 2; half++) {
      float* place = scores + row * PANEL + half * LANES;
      const Floats score = load(place);
      const Floats weight = select(score == hidden, Floats{}, exp2(score - base[half]));
      store(place, weight);
      total[half] += weight;
    }
  }
  store(totals, total[0]);
  store(totals + LANES, total[1]);
}

// Write each number times its column's factor, rounded to int16, to out, [rows / 2, PANEL, 2], and add what is written to
// totals. rows is even.
INLINE void round_column_pairs(const float* weights, int64_t rows, const float* factors, float* totals, int16_t* out) {
  const Floats magic = broadcast(TO_INTEGER);
  Floats factor[2] = {load(factors), load(factors + LANES)}, total[2] = {load(totals), load(totals + LANES)};
  for (int64_t row = 0; row < rows; row += 2) {
    UNROLL for (int half = 0; half < 2; half++) {
      const float* place = weights + row * PANEL + half * LANES;
      const Floats one = load(place) * factor[half] + magic, other = load(place + PANEL) * factor[half] + magic;
      total[half] += (one - magic) + (other - magic);
      const Ints pair = (bits_as<Ints>(one) & 0xffff) | (bits_as<Ints>(other) << 16);
      memcpy(out + row * PANEL + half * 2 * LANES, &pair, sizeof pair);
    }
  }
  store(totals, total[0]);
  store(totals + LANES, total[1]);
}

// Raise 2 to `factor` times each number less its column's top, write the results as bfloat16 to out, [rows / 2, PANEL, 2]
// filled up with zeros, and add what is written to totals.
INLINE void column_exp2_pairs(const float* scores, int64_t rows, const float* tops, float factor, float* totals,
                              BFloat16* out) {
  const Floats hidden = broadcast(-std::numeric_limits<float>::infinity());
  Floats base[2], total[2];
  UNROLL for (int half = 0; half < 2; half++) {
    const Floats top = load(tops + half * LANES);
    base[half] = select(top == hidden, Floats{}, top);
    total[half] = load(totals + half * LANES);
  }
  const auto weight = [&](int64_t row, int half) INLINE_LAMBDA {
    const Floats score = load(scores + row * PANEL + half * LANES);
    return select(score == hidden, Floats{}, exp2((score - base[half]) * broadcast(factor)));
  };
  for (int64_t row = 0; row < rows; row += 2) {
    UNROLL for (int half = 0; half < 2; half++) {
      const Floats other = row + 1 < rows ? weight(row + 1, half) : Floats{};
      const Shorts pairs = to_bfloat16_pairs(weight(row, half), other);
      memcpy(out + row * PANEL + half * 2 * LANES, &pairs, sizeof pairs);
      const Ints bits = bits_as<Ints>(pairs);
      total[half] += bits_as<Floats>(bits << 16) + bits_as<Floats>(bits & ~0xffff);
    }
  }
  store(totals, total[0]);
  store(totals + LANES, total[1]);
}

INLINE void invert_totals(float* totals) {
  for (int i = 0; i < PANEL; i++) totals[i] = totals[i] != 0 ? 1.0f / totals[i] : 0.0f;
}

// Divide each column by its total.
INLINE void divide_columns(float* columns, int64_t rows, float* totals) {
  invert_totals(totals);
  for (int64_t row = 0; row < rows; row++) {
    for (int i = 0; i < PANEL; i++) columns[row * PANEL + i] *= totals[i];
  }
}

}  // namespace transept
