// Rounds a row of float32 to integers of 8 or 16 bits, or to bfloat16.
#pragma once

#include <algorithm>

#include "../isa_pairs.h"

namespace transept {

// Round `size` numbers to multiples of a step, up to `most` steps either way, padded with zeros to `filled`. Returns the step,
// 0 for a row of zeros. row: [size], out: [filled].
template <class Number>
inline float round_row(const float* row, int64_t size, Number* out, int64_t filled, int most) {
  int32_t top = 0;
  Ints tops = {};
  int64_t whole = size / LANES * LANES;
  for (int64_t i = 0; i < whole; i += LANES) {  // positive floats have the order of their bits
    Ints bits = load_as<Ints>(row + i) & 0x7fffffff;
    tops = bits > tops ? bits : tops;
  }
  for (int lane = 0; lane < LANES; lane++) top = std::max(top, tops[lane]);
  for (int64_t i = whole; i < size; i++) {
    int32_t bits;
    memcpy(&bits, row + i, 4);
    top = std::max(top, bits & 0x7fffffff);
  }
  float highest;
  memcpy(&highest, &top, 4);
  const float factor = top > 0 ? (float)most / highest : 0.0f;
  for (int64_t i = 0; i < size; i++) {
    float shifted = row[i] * factor + TO_INTEGER;
    int32_t bits;
    memcpy(&bits, &shifted, 4);
    out[i] = (Number)bits;
  }
  std::fill(out + size, out + filled, 0);
  return highest / (float)most;
}

// Round `size` numbers to bfloat16, padded with zeros to `filled`. row: [size], out: [filled].
inline void round_row_to_bfloat16(const float* row, int64_t size, BFloat16* out, int64_t filled) {
  int64_t i = 0;
  for (; i + 2 * LANES <= size; i += 2 * LANES) store_bfloat16(out + i, load(row + i), load(row + i + LANES));
  for (; i < size; i++) {
    const Shorts pairs = to_bfloat16_pairs(broadcast(row[i]), Floats{});
    out[i].bits = (uint16_t)pairs[0];
  }
  std::fill(out + size, out + filled, BFloat16{0});
}

}  // namespace transept
