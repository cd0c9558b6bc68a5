// Products with weights in bfloat16. Rows of x are also rounded to bfloat16; sums are float32.
#include "../scratch.h"
#include "amx.h"
#include "pair_tile.h"
#include "rounding.h"
#include "weight.h"
#include "weight_tile.h"

namespace transept {

void bfloat16_product(const float* x, int64_t rows, const Weight& weight, const Epilogue& epilogue, float* out) {
  const int64_t num_in = weight.num_inputs, depth = whole_pairs(num_in), distance = row_distance<BFloat16>(depth);
  if (amx_serves_bfloat16(depth)) return bfloat16_product_by_amx(x, rows, weight, epilogue, out);
  const int64_t panels = (weight.num_outputs + PANEL - 1) / PANEL;
  const BFloat16* packed = static_cast<const BFloat16*>(weight.values);
  using Rows = TileRows<BFloat16>;
  const Rows rounded{scratch<Use::ROUNDED_ROWS, BFloat16>(Rows::size(rows, distance)), distance, depth};
  for_rows(rows, [&](int64_t row) {
    rounded.put(row, [&](BFloat16* to) { round_row_to_bfloat16(x + row * num_in, num_in, to, depth); });
  });
  for_pieces(rows, panels, [&](int64_t first_row, int64_t stop_row, int64_t first_panel, int64_t stop_panel) {
    for_tiles(first_row, stop_row, first_panel, stop_panel, weight.num_outputs, out,
              [&](auto rows, auto panels, int64_t row, int64_t panel, float* to, int64_t stride) {
                bfloat16_weight_tile<rows, panels>(rounded, row, packed + panel * depth * PANEL, to, stride);
              });
    apply_epilogue(out, weight.num_outputs, epilogue, first_row, stop_row, first_panel, stop_panel);
  });
}

}  // namespace transept
