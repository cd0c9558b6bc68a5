// Packing: a weight as products read it. One reading of the weight, which may lie in a mapped file.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>

#include "../export.h"
#include "../parallel.h"
#include "../simd.h"
#include "weight.h"

namespace transept {
namespace {

constexpr int LARGEST = 127;


// Rows of numbers as float32; those of float16 are widened a row at a time.
const float* row_as_floats(const float* row, int64_t, float*) { return row; }
const float* row_as_floats(const Half* row, int64_t size, float* room) {
  int64_t i = 0;
  for (; i + LANES <= size; i += LANES) store(room + i, load(row + i));
  for (; i < size; i++) room[i] = load_one(row + i);
  return room;
}

// Into [panels, in, PANEL], all numbers of one size. Returns whether each of them is what it was.
template <class From, class To>
bool pack_panel(const From* weight, int64_t outputs, int64_t num_in, To* panel) {
  constexpr int AT_ONCE = 16;  // inputs, whose cache lines of all outputs stay in the first cache
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

template <class From>
void pack_int8(const From* weight, int64_t num_out, int64_t num_in, int8_t* values, float* scales) {
  const int64_t depth = num_in + num_in % 2;
  parallel_for((num_out + PANEL - 1) / PANEL, [&](int64_t panel) {
    std::unique_ptr<float[]> room(new float[num_in]);
    int8_t* packed = values + panel * depth * PANEL;
    for (int64_t i = 0; i < PANEL; i++) {
      const int64_t output = panel * PANEL + i;
      float& scale = scales[output] = 0;
      if (output < num_out) {
        const float* row = row_as_floats(weight + output * num_in, num_in, room.get());
        float top = 0;
        for (int64_t k = 0; k < num_in; k++) top = std::max(top, std::fabs(row[k]));
        scale = top / LARGEST;
        const float step = std::max(scale, 1.17549435e-38f);  // the smallest normal number
        for (int64_t k = 0; k < num_in; k++) {
          packed[k / 2 * 2 * PANEL + 2 * i + k % 2] = (int8_t)std::nearbyintf(row[k] / step);
        }
      }
      for (int64_t k = output < num_out ? num_in : 0; k < depth; k++) packed[k / 2 * 2 * PANEL + 2 * i + k % 2] = 0;
    }
  });
}

}  // namespace
}  // namespace transept

using transept::Half;

EXPORT int64_t transept_panel() { return transept::PANEL; }

// Pack a weight [out, in] of float32 (is_half 0) or float16 (1) as kind. Returns 0 where float16 does not hold all numbers
// of it; values hold nothing then.
EXPORT int64_t transept_pack_floats(const void* weight, int64_t is_half, int64_t num_out, int64_t num_in, int64_t kind,
                                    void* values) {
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
}

// Round a weight to int8, each output by its largest number.
EXPORT void transept_pack_int8(const void* weight, int64_t is_half, int64_t num_out, int64_t num_in, int8_t* values,
                               float* scales) {
  if (is_half) {
    transept::pack_int8(static_cast<const Half*>(weight), num_out, num_in, values, scales);
  } else {
    transept::pack_int8(static_cast<const float*>(weight), num_out, num_in, values, scales);
  }
}
