// Products with weights in int8, each output with a scale. Each row of x is rounded to as many steps as a sum of 32 bits
// has room for, at most 32,767 either way (4128 where a row has 4096 numbers).
#include "../scratch.h"
#include "amx.h"
#include "integer_tile.h"
#include "rounding.h"
#include "weight.h"

namespace transept {
namespace {

constexpr int LARGEST = 127;  // of a weight

void int8_piece(const int16_t* rounded, int64_t depth, const float* steps, const Weight& weight, float* out,
                    int64_t first_row, int64_t stop_row, int64_t first_panel, int64_t stop_panel) {
  const int64_t num_out = weight.num_outputs;
  const int8_t* packed = static_cast<const int8_t*>(weight.values);
  const int64_t whole = std::min(stop_panel, num_out / PANEL);
  for (int64_t block = first_row; block < stop_row; block += BLOCK_ROWS) {
    const int64_t stop = std::min<int64_t>(block + BLOCK_ROWS, stop_row);
    int64_t panel = first_panel;
    if (stop - block <= TILE_ROWS_OF_TWO) {  // two streams are read faster than one
      for (; panel + 2 <= whole; panel += 2) {
        with_constant<TILE_ROWS_OF_TWO>(stop - block, [&](auto rows) {
          integer_tile<rows, 2>(rounded + block * depth, depth, packed + panel * depth * PANEL, steps + block,
                                weight.scales + panel * PANEL, out + block * num_out + panel * PANEL, num_out);
        });
      }
    }
    for (; panel < whole; panel++) {
      for (int64_t row = block; row < stop; row += TILE_ROWS) {
        with_constant<TILE_ROWS>(std::min<int64_t>(TILE_ROWS, stop - row), [&](auto rows) {
          integer_tile<rows, 1>(rounded + row * depth, depth, packed + panel * depth * PANEL, steps + row,
                                weight.scales + panel * PANEL, out + row * num_out + panel * PANEL, num_out);
        });
      }
    }
  }
  if (whole < stop_panel) {  // the last panel, which is filled up
    float sums[PANEL];
    for (int64_t row = first_row; row < stop_row; row++) {
      integer_tile<1, 1>(rounded + row * depth, depth, packed + whole * depth * PANEL, steps + row,
                         weight.scales + whole * PANEL, sums, PANEL);
      std::copy(sums, sums + (num_out - whole * PANEL), out + row * num_out + whole * PANEL);
    }
  }
}

}  // namespace

void int8_product(const float* x, int64_t rows, const Weight& weight, const float* bias, float* out) {
  const int64_t num_in = weight.num_inputs, depth = num_in + num_in % 2;
  const int64_t panels = (weight.num_outputs + PANEL - 1) / PANEL;
  int16_t* rounded = scratch<Use::ROUNDED_ROWS, int16_t>(rows * depth);
  float* steps = scratch<Use::ROW_STEPS, float>(rows);
  const int most = std::min<int64_t>(32767, INT32_MAX / (LARGEST * std::max<int64_t>(depth, 1)));
  auto round = [&](int64_t row) {
    steps[row] = round_row(x + row * num_in, num_in, rounded + row * depth, depth, most);
  };
  if (rows <= ROWS_OF_FEW) {  // threads would take longer to begin
    for (int64_t row = 0; row < rows; row++) round(row);
  } else {
    parallel_for(rows, round);
  }
  if (rows > PIECE_ROWS && amx_serves_int8(depth)) {
    rounded_product_by_amx(rounded, rows, depth, steps, weight, bias, out);
    return;
  }
  for_pieces(rows, panels, [&](int64_t row, int64_t stop_row, int64_t panel, int64_t stop_panel) {
    int8_piece(rounded, depth, steps, weight, out, row, stop_row, panel, stop_panel);
    if (bias) add_bias(out, weight.num_outputs, bias, row, stop_row, panel, stop_panel);
  });
}

}  // namespace transept
