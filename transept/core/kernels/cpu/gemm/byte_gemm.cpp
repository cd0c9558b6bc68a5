// Products of rows that are rounded to int8 with weights in int8, each output with a scale. x86's instructions multiply numbers
// with a sign by numbers without, so 128 is added to each weight when it is packed, and its share subtracted from the sums.
#include "../scratch.h"
#include "amx.h"
#include "weight.h"
#include "weight_tile.h"

namespace transept {
namespace {

struct RowsInInt8 {
  TileRows<RowOfQuads> tiled;
  int32_t* offsets;  // [rows]
  float* steps;      // [rows]
};

}  // namespace

void byte_product(const float* x, int64_t rows, const Weight& weight, const Epilogue& epilogue, float* out) {
  const int64_t num_in = weight.num_inputs, depth = whole_bytes(num_in);
  const int64_t panels = (weight.num_outputs + PANEL - 1) / PANEL;
  const uint8_t* packed = static_cast<const uint8_t*>(weight.values);
  const int64_t distance = row_distance<RowOfQuads>(depth);
  if (amx_serves_bytes(num_in)) return byte_product_by_amx(x, rows, weight, epilogue, out);
  using Rows = TileRows<RowOfQuads>;
  const RowsInInt8 rounded{{scratch<Use::ROUNDED_ROWS, RowOfQuads>(Rows::size(rows, distance)), distance, depth},
                           scratch<Use::ROW_OFFSETS, int32_t>(rows), scratch<Use::ROW_STEPS, float>(rows)};
  for_rows(rows, [&](int64_t row) {
    rounded.tiled.put(row, [&](RowOfQuads* to) {
      rounded.steps[row] = round_row_to_quads(x + row * num_in, num_in, to, depth, rounded.offsets[row]);
    });
  });
  for_pieces(rows, panels, [&](int64_t first_row, int64_t stop_row, int64_t first_panel, int64_t stop_panel) {
    for_tiles(first_row, stop_row, first_panel, stop_panel, weight.num_outputs, out,
              [&](auto rows, auto panels, int64_t first, int64_t panel, float* to, int64_t stride) {
                byte_tile<rows, panels>(
                    rounded.tiled, first, packed + panel * depth * PANEL, [&](int row, int vector, Ints sums) INLINE_LAMBDA {
                      const Floats scales = load(weight.scales + panel * PANEL + vector * LANES);
                      const Floats total = to_floats(sums - broadcast(rounded.offsets[first + row]));
                      store(to + row * stride + vector * LANES, total * broadcast(rounded.steps[first + row]) * scales);
                    });
              });
    apply_epilogue(out, weight.num_outputs, epilogue, first_row, stop_row, first_panel, stop_panel);
  });
}

}  // namespace transept
