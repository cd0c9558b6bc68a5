// Products with weights in int8, each output with a scale. Each row of x is rounded to as many steps as sums of 32 bits have
// room for, at most 32,767 either way (4128 if a row has 4096 numbers).
#include "../scratch.h"
#include "amx.h"
#include "pair_tile.h"
#include "rounding.h"
#include "weight.h"

namespace transept {
namespace {

constexpr int LARGEST = 127;  // the largest weight

}  // namespace

void int8_product(const float* x, int64_t rows, const Weight& weight, const Epilogue& epilogue, float* out) {
  const int64_t num_in = weight.num_inputs, depth = num_in + num_in % 2;
  const int64_t panels = (weight.num_outputs + PANEL - 1) / PANEL;
  const int8_t* packed = static_cast<const int8_t*>(weight.values);
  const bool by_amx = rows > ROWS_OF_FEW && amx_serves_int8(depth);
  const int64_t distance = by_amx ? depth : row_distance<int16_t>(depth);
  int16_t* rounded = scratch<Use::ROUNDED_ROWS, int16_t>(rows * distance);
  float* steps = scratch<Use::ROW_STEPS, float>(rows);
  const int most = std::min<int64_t>(32767, INT32_MAX / (LARGEST * std::max<int64_t>(depth, 1)));
  for_rows(rows, [&](int64_t row) {
    steps[row] = round_row(x + row * num_in, num_in, rounded + row * distance, depth, most);
  });
  if (by_amx) {
    rounded_product_by_amx(rounded, rows, depth, steps, weight, epilogue, out);
    return;
  }
  for_pieces(rows, panels, [&](int64_t first_row, int64_t stop_row, int64_t first_panel, int64_t stop_panel) {
    for_tiles(first_row, stop_row, first_panel, stop_panel, weight.num_outputs, out,
              [&](auto rows, auto panels, int64_t row, int64_t panel, float* to, int64_t stride) {
                integer_tile<rows, panels>(rounded + row * distance, distance, depth, packed + panel * depth * PANEL,
                                           steps + row, weight.scales + panel * PANEL, to, stride);
              });
    apply_epilogue(out, weight.num_outputs, epilogue, first_row, stop_row, first_panel, stop_panel);
  });
}

}  // namespace transept
