// Packs weights in the order in which products read them. A weight, which may be a mapped file, is read once.
#include <algorithm>
#include <atomic>
#include <cmath>

#include "../export.h"
#include "../parallel.h"
#include "groups.h"
#include "rounding.h"
#include "weight.h"

namespace transept {
namespace {

constexpr int LARGEST = 127;
constexpr int ROUNDED_INPUTS = 64;  // inputs that are rounded at a time, for all outputs of a panel

typedef int8_t Bytes __attribute__((vector_size(LANES)));

// Pack outputs of a weight, [outputs, in], into a panel, [in, PANEL]. Returns true if no number changed.
template <class From, class To>
bool pack_panel(const From* weight, int64_t outputs, int64_t num_in, To* panel) {
  constexpr int AT_ONCE = 16;  // inputs; their cache lines, of all outputs, stay in the first cache
  bool same = true;
  for (int64_t first = 0; first < num_in; first += AT_ONCE) {
    const int64_t stop = std::min<int64_t>(first + AT_ONCE, num_in);
    float block[AT_ONCE][PANEL] = {};
    for (int64_t output = 0; output < outputs; output++) {
      const From* row = weight + output * num_in;
      if constexpr (sizeof(From) == 2) {
        float numbers[AT_ONCE];
        int64_t count = stop - first;
        if (count == AT_ONCE) {
          for (int i = 0; i < AT_ONCE; i += LANES) store(numbers + i, load(row + first + i));
        } else {
          for (int64_t i = 0; i < count; i++) numbers[i] = load_one(row + first + i);
        }
        for (int64_t i = 0; i < count; i++) block[i][output] = numbers[i];
      } else {
        for (int64_t i = first; i < stop; i++) block[i - first][output] = row[i];
      }
    }
    for (int64_t i = first; i < stop; i++) {
      for (int half = 0; half < PANEL; half += LANES) {
        Floats numbers = load(block[i - first] + half);
        To* to = panel + i * PANEL + half;
        store(to, numbers);
        if constexpr (sizeof(To) == 2 && sizeof(From) == 4) {
          Ints different = load(to) != numbers;
          int32_t any = 0;
          for (int lane = 0; lane < LANES; lane++) any |= different[lane];
          same &= any == 0;
        }
      }
    }
    if (!same) return false;
  }
  return same;
}

template <class From, class To>
bool pack_floats(const From* weight, int64_t num_out, int64_t num_in, To* values) {
  std::atomic<bool> same{true};
  parallel_for((num_out + PANEL - 1) / PANEL, [&](int64_t panel) {
    if (!same.load(std::memory_order_relaxed)) return;
    const int64_t first = panel * PANEL, outputs = std::min<int64_t>(PANEL, num_out - first);
    if (!pack_panel(weight + first * num_in, outputs, num_in, values + panel * num_in * PANEL)) same = false;
  });
  return same;
}

// Return the largest absolute value, ignoring NaN.
template <class From>
float largest(const From* numbers, int64_t size) {
  Floats tops = {};
  const int64_t whole = size / LANES * LANES;
  for (int64_t i = 0; i < whole; i += LANES) {
    tops = maximum(bits_as<Floats>(bits_as<Ints>(load(numbers + i)) & 0x7fffffff), tops);
  }
  float top = highest(tops);
  for (int64_t i = whole; i < size; i++) top = std::max(top, std::fabs(load_one(numbers + i)));
  return top;
}

// Return the integers nearest to numbers / step; 0 for NaN.
INLINE Bytes rounded(Floats numbers, float step) {
  Floats steps = numbers / broadcast(step);
  steps = select(steps == steps, steps, Floats{}) + broadcast(TO_INTEGER);
  return __builtin_convertvector(bits_as<Ints>(steps), Bytes);
}

template <class From>
void round_to_int8(const From* numbers, int64_t size, float step, int8_t* out) {
  int64_t i = 0;
  for (; i + LANES <= size; i += LANES) {
    const Bytes bytes = rounded(load(numbers + i), step);
    memcpy(out + i, &bytes, LANES);
  }
  for (; i < size; i++) out[i] = rounded(broadcast(load_one(numbers + i)), step)[0];
}

// Copy groups of `count` inputs of each output, padded with zeros, to a panel, [groups of inputs, PANEL, GROUP].
template <int GROUP, class Number>
void copy_groups(const Number (&block)[PANEL][ROUNDED_INPUTS], int64_t count, Number* panel) {
  for (int64_t group = 0; group < count; group += GROUP) {
    for (int64_t output = 0; output < PANEL; output++, panel += GROUP) {
      memcpy(panel, block[output] + group, GROUP * sizeof(Number));
    }
  }
}

// Pack outputs of a weight, [outputs, in], into a panel, [groups of inputs, PANEL, GROUP], padded with zeros. `offset` is added
// to each number. scales: [PANEL].
template <int GROUP, class From>
void pack_int8_panel(const From* weight, int64_t outputs, int64_t num_in, int offset, int8_t* panel, float* scales) {
  for (int64_t output = 0; output < PANEL; output++) {
    scales[output] = output < outputs ? largest(weight + output * num_in, num_in) / LARGEST : 0;
  }
  for (int64_t first = 0; first < num_in; first += ROUNDED_INPUTS) {
    const int64_t count = std::min<int64_t>(ROUNDED_INPUTS, num_in - first);
    int8_t block[PANEL][ROUNDED_INPUTS] = {};
    for (int64_t output = 0; output < outputs; output++) {
      const float step = std::max(scales[output], 1.17549435e-38f);  // the smallest normal number
      round_to_int8(weight + output * num_in + first, count, step, block[output]);
    }
    for (int8_t* number = block[0]; number < block[0] + sizeof block; number++) *number = (int8_t)(*number + offset);
    copy_groups<GROUP>(block, count, panel + first * PANEL);
  }
}

// Pack outputs of a weight, [outputs, in], into a panel, [groups, PANEL, BFLOAT16_GROUP], padded with zeros.
template <class From>
void pack_bfloat16_panel(const From* weight, int64_t outputs, int64_t num_in, BFloat16* panel) {
  if constexpr (BFLOAT16_GROUP > 2) {
    for (int64_t first = 0; first < num_in; first += ROUNDED_INPUTS) {
      const int64_t count = std::min<int64_t>(ROUNDED_INPUTS, num_in - first);
      BFloat16 block[PANEL][ROUNDED_INPUTS] = {};
      for (int64_t output = 0; output < outputs; output++) {
        float numbers[ROUNDED_INPUTS];
        for (int64_t i = 0; i < count; i++) numbers[i] = load_one(weight + output * num_in + first + i);
        round_row_to_bfloat16(numbers, count, block[output], count);
      }
      copy_groups<BFLOAT16_GROUP>(block, count, panel + first * PANEL);
    }
    return;
  }
  float block[2 * PANEL] = {};
  for (int64_t input = 0; input < num_in; input += 2, panel += 2 * PANEL) {
    for (int64_t output = 0; output < outputs; output++) {
      const From* from = weight + output * num_in + input;
      block[output] = load_one(from);
      block[PANEL + output] = input + 1 < num_in ? load_one(from + 1) : 0;
    }
    for (int half = 0; half < PANEL; half += LANES) {
      const Shorts pairs = to_bfloat16_pairs(load(block + half), load(block + PANEL + half));
      memcpy(panel + 2 * half, &pairs, sizeof pairs);
    }
  }
}

template <class From>
void pack_bfloat16(const From* weight, int64_t num_out, int64_t num_in, BFloat16* values) {
  const int64_t depth = whole_pairs(num_in), filled = (num_in + BFLOAT16_GROUP - 1) / BFLOAT16_GROUP * BFLOAT16_GROUP;
  parallel_for((num_out + PANEL - 1) / PANEL, [&](int64_t panel) {
    const int64_t first = panel * PANEL, outputs = std::min<int64_t>(PANEL, num_out - first);
    BFloat16* to = values + panel * depth * PANEL;
    pack_bfloat16_panel(weight + first * num_in, outputs, num_in, to);
    std::fill(to + filled * PANEL, to + depth * PANEL, BFloat16{0});
  });
}

template <int GROUP, class From>
void pack_int8(const From* weight, int64_t num_out, int64_t num_in, int offset, int8_t* values, float* scales) {
  const int64_t depth = (num_in + GROUP - 1) / GROUP * GROUP;
  parallel_for((num_out + PANEL - 1) / PANEL, [&](int64_t panel) {
    const int64_t first = panel * PANEL, outputs = std::min<int64_t>(PANEL, num_out - first);
    int8_t* to = values + panel * depth * PANEL;
    pack_int8_panel<GROUP>(weight + first * num_in, outputs, num_in, offset, to, scales + first);
  });
}

}  // namespace
}  // namespace transept

using transept::Half;

EXPORT int64_t transept_panel() { return transept::PANEL; }
EXPORT int64_t transept_whole_bytes(int64_t num_inputs) { return transept::whole_bytes(num_inputs); }
EXPORT int64_t transept_whole_pairs(int64_t num_inputs) { return transept::whole_pairs(num_inputs); }

// Pack a weight [out, in] of float32 (is_half 0) or float16 (1) as `kind`. Returns 0 if float16 does not hold all of its
// numbers; values are then undefined.
EXPORT int64_t transept_pack_floats(const void* weight, int64_t is_half, int64_t num_out, int64_t num_in, int64_t kind,
                                    void* values) {
  return transept::run_kernel([&]() -> int64_t {
    auto floats = static_cast<const float*>(weight);
    auto halves = static_cast<const Half*>(weight);
    auto to_floats = static_cast<float*>(values);
    auto to_halves = static_cast<Half*>(values);
    if (kind == transept::FLOAT16) {
      return is_half ? transept::pack_floats(halves, num_out, num_in, to_halves)
                     : transept::pack_floats(floats, num_out, num_in, to_halves);
    }
    return is_half ? transept::pack_floats(halves, num_out, num_in, to_floats)
                   : transept::pack_floats(floats, num_out, num_in, to_floats);
  });
}

// Round a weight [out, in] to int8, each output by its largest number: into pairs of inputs, or for rows in int8 (kind 4) into
// groups of BYTE_GROUP, with QUAD_OFFSET added. scales: [panels * PANEL].
EXPORT int64_t transept_pack_int8(const void* weight, int64_t is_half, int64_t num_out, int64_t num_in, int64_t kind,
                                  int8_t* values, float* scales) {
  return transept::run_kernel([&] {
    const auto pack = [&](const auto* numbers) {
      if (kind == transept::INT8) {
        transept::pack_int8<2>(numbers, num_out, num_in, 0, values, scales);
      } else {
        transept::pack_int8<transept::BYTE_GROUP>(numbers, num_out, num_in, transept::QUAD_OFFSET, values, scales);
      }
    };
    is_half ? pack(static_cast<const Half*>(weight)) : pack(static_cast<const float*>(weight));
  });
}

// Round a weight [out, in] to bfloat16.
EXPORT int64_t transept_pack_bfloat16(const void* weight, int64_t is_half, int64_t num_out, int64_t num_in,
                                      transept::BFloat16* values) {
  return transept::run_kernel([&] {
    if (is_half) {
      transept::pack_bfloat16(static_cast<const Half*>(weight), num_out, num_in, values);
    } else {
      transept::pack_bfloat16(static_cast<const float*>(weight), num_out, num_in, values);
    }
  });
}
