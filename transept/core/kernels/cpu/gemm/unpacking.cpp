// Reads rows of a packed weight, for embeddings.
#include "../export.h"
#include "groups.h"
#include "weight.h"

namespace transept {
namespace {

// Write one output's numbers to out, [in]. GROUP inputs lie side by side; to_float converts a packed number.
template <int GROUP, class Number, class ToFloat>
void unpack_row(const void* values, int64_t depth, int64_t num_in, int64_t output, const ToFloat& to_float, float* out) {
  const Number* row = static_cast<const Number*>(values) + output / PANEL * depth * PANEL + output % PANEL * GROUP;
  for (int64_t input = 0; input < num_in; input++) {
    out[input] = to_float(row[input / GROUP * PANEL * GROUP + input % GROUP]);
  }
}

void unpack(const Weight& weight, int64_t output, float* out) {
  const int64_t num_in = weight.num_inputs;
  switch (weight.kind) {
    case FLOAT32:
      return unpack_row<1, float>(weight.values, num_in, num_in, output, [](float number) { return number; }, out);
    case FLOAT16:
      return unpack_row<1, Half>(weight.values, num_in, num_in, output, [](Half half) { return load_one(&half); }, out);
    case BFLOAT16:
      return unpack_row<BFLOAT16_GROUP, BFloat16>(weight.values, whole_pairs(num_in), num_in, output, [](BFloat16 number) {
        return bits_as<float>((uint32_t)number.bits << 16);
      }, out);
    case INT8:
      return unpack_row<2, int8_t>(weight.values, num_in + num_in % 2, num_in, output, [&](int8_t number) {
        return number * weight.scales[output];
      }, out);
    case INT8_FOR_BYTES:
      return unpack_row<BYTE_GROUP, uint8_t>(weight.values, whole_bytes(num_in), num_in, output, [&](uint8_t number) {
        return (int8_t)(number - QUAD_OFFSET) * weight.scales[output];
      }, out);
  }
}

}  // namespace
}  // namespace transept

// Write rows of a weight to out, float32 [count, in], and if places are given, add rows of a table [size, in].
// outputs, places: [count]. Returns the number of rows before the first that the weight or the table does not have.
EXPORT int64_t transept_weight_rows(const transept::Weight* weight, const int64_t* outputs, int64_t count,
                                    const float* table, int64_t size, const int64_t* places, float* out) {
  return transept::run_kernel([&]() -> int64_t {
    const int64_t num_in = weight->num_inputs;
    for (int64_t row = 0; row < count; row++) {
      if (outputs[row] < 0 || outputs[row] >= weight->num_outputs) return row;
      if (places && (places[row] < 0 || places[row] >= size)) return row;
      float* to = out + row * num_in;
      transept::unpack(*weight, outputs[row], to);
      for (int64_t i = 0; places && i < num_in; i++) to[i] += table[places[row] * num_in + i];
    }
    return count;
  });
}
