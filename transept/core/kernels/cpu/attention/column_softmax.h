// The steps of a softmax down the columns of a matrix [keys, PANEL queries]. A column that holds NaN becomes NaN. Minus
// infinity has weight 0, also in a column that holds nothing else.
#pragma once

#include <limits>

#include "../elementwise/math.h"
#include "../isa_pairs.h"

namespace transept {

constexpr float NO_TOP = std::numeric_limits<float>::lowest();  // the top of a column before its first number

// Raise tops to the highest number of each column, if that is higher. Returns true if one was raised. scores: [rows, PANEL],
// tops: [PANEL].
INLINE bool raise_tops(const float* scores, int64_t rows, float* tops) {
  Floats top[2] = {load(tops), load(tops + LANES)};
  const Floats before[2] = {top[0], top[1]};
  int64_t row = 0;
  if (rows >= 4) {  // four independent maxima at a time
    Floats of_rows[4][2] = {{top[0], top[1]}, {top[0], top[1]}, {top[0], top[1]}, {top[0], top[1]}};
    for (; row + 4 <= rows; row += 4, scores += 4 * PANEL) {
      UNROLL for (int i = 0; i < 8; i++) of_rows[i / 2][i % 2] = maximum(load(scores + i * LANES), of_rows[i / 2][i % 2]);
    }
    UNROLL for (int half = 0; half < 2; half++) {
      top[half] = maximum(maximum(of_rows[0][half], of_rows[1][half]), maximum(of_rows[2][half], of_rows[3][half]));
    }
  }
  for (; row < rows; row++, scores += PANEL) {
    UNROLL for (int half = 0; half < 2; half++) top[half] = maximum(load(scores + half * LANES), top[half]);
  }
  store(tops, top[0]);
  store(tops + LANES, top[1]);
  return any((top[0] > before[0]) | (top[1] > before[1]));
}

// The same for columns that come in parts: as tops rise, rescale the totals, [PANEL], and the sums, [rows_of_sums, PANEL], of
// the earlier parts.
INLINE void raise_tops_of_sums(const float* scores, int64_t rows, float* tops, float* totals, float* sums,
                               int64_t rows_of_sums) {
  const Floats before[2] = {load(tops), load(tops + LANES)};
  if (!raise_tops(scores, rows, tops)) return;
  UNROLL for (int half = 0; half < 2; half++) {
    const Floats factor = exp2(before[half] - load(tops + half * LANES));  // 1 if a top did not change
    store(totals + half * LANES, load(totals + half * LANES) * factor);
    for (int64_t row = 0; row < rows_of_sums; row++) {
      float* place = sums + row * PANEL + half * LANES;
      store(place, load(place) * factor);
    }
  }
}

// scores = 2 ** (scores - tops), in place, [rows, PANEL]. Add the results to totals, [PANEL].
INLINE void column_exp2(float* scores, int64_t rows, const float* tops, float* totals) {
  const Floats top[2] = {load(tops), load(tops + LANES)};
  Floats total[2] = {load(totals), load(totals + LANES)};
  for (int64_t row = 0; row < rows; row++) {
    UNROLL for (int half = 0; half < 2; half++) {
      float* place = scores + row * PANEL + half * LANES;
      const Floats weight = exp2(load(place) - top[half]);
      store(place, weight);
      total[half] += weight;
    }
  }
  store(totals, total[0]);
  store(totals + LANES, total[1]);
}

// Compute the factors, [PANEL], that turn weights relative to `tops` into weights relative to `final_tops`, times `most`.
INLINE void column_factors(const float* tops, const float* final_tops, const float* most, float* factors) {
  UNROLL for (int lane = 0; lane < PANEL; lane += LANES) {
    store(factors + lane, exp2(load(tops + lane) - load(final_tops + lane)) * load(most + lane));
  }
}

// Round two vectors to int16, each lane's numbers side by side.
INLINE Shorts round_to_pairs(Floats one, Floats other) {
  const Ints first = bits_as<Ints>(one + broadcast(TO_INTEGER)), second = bits_as<Ints>(other + broadcast(TO_INTEGER));
  return bits_as<Shorts>((first & 0xffff) | (second << 16));
}

// out = weights * factors, rounded to int16, as [rows / 2, PANEL, 2]. Add the results to totals, [PANEL]. weights:
// [rows, PANEL], factors: [PANEL]; rows is even.
INLINE void round_column_pairs(const float* weights, int64_t rows, const float* factors, float* totals, int16_t* out) {
  const Floats magic = broadcast(TO_INTEGER);
  Floats factor[2] = {load(factors), load(factors + LANES)}, total[2] = {load(totals), load(totals + LANES)};
  for (int64_t row = 0; row < rows; row += 2) {
    UNROLL for (int half = 0; half < 2; half++) {
      const float* place = weights + row * PANEL + half * LANES;
      const Floats one = load(place) * factor[half], other = load(place + PANEL) * factor[half];
      total[half] += (one + magic - magic) + (other + magic - magic);
      const Shorts pair = round_to_pairs(one, other);
      memcpy(out + row * PANEL + half * 2 * LANES, &pair, sizeof pair);
    }
  }
  store(totals, total[0]);
  store(totals + LANES, total[1]);
}

// out = 2 ** (scores - tops), rounded to bfloat16, as [rows / 2, PANEL, 2], padded with zeros. Add the results to totals,
// [PANEL]. scores: [rows, PANEL].
INLINE void column_exp2_pairs(const float* scores, int64_t rows, const float* tops, float* totals, BFloat16* out) {
  const Floats top[2] = {load(tops), load(tops + LANES)};
  Floats total[2] = {load(totals), load(totals + LANES)};
  const Shorts ones = bits_as<Shorts>(broadcast(bits_as<int32_t>(1.0f) | bits_as<int32_t>(1.0f) >> 16));
  const auto weight = [&](int64_t row, int half) INLINE_LAMBDA {
    return exp2_for_bfloat16(load(scores + row * PANEL + half * LANES) - top[half]);
  };
  for (int64_t row = 0; row < rows; row += 2) {
    UNROLL for (int half = 0; half < 2; half++) {
      const Floats other = row + 1 < rows ? weight(row + 1, half) : Floats{};
      const Shorts pairs = to_bfloat16_pairs(weight(row, half), other);
      memcpy(out + row * PANEL + half * 2 * LANES, &pairs, sizeof pairs);
      total[half] = dot_pairs(total[half], pairs, ones);
    }
  }
  store(totals, total[0]);
  store(totals + LANES, total[1]);
}

INLINE void invert_totals(float* totals) {
  for (int i = 0; i < PANEL; i++) totals[i] = totals[i] != 0 ? 1.0f / totals[i] : 0.0f;
}

}  // namespace transept
