// Products with weights in float32, or in float16 that is widened as it is read. Few rows are bound by the memory's bandwidth,
// many by the processor's arithmetic.
#include "../scratch.h"
#include "float_tile.h"
#include "weight.h"

namespace transept {
namespace {

constexpr int SUMMED = 128;       // inputs of a partial sum: sums of partial sums are rounded less
constexpr int PASS_INPUTS = 512;  // inputs that all rows of a piece are multiplied by before the next ones
// Rows a multiple of 4 KB apart share a set of the first cache. If there are many of them, a piece copies the inputs of each
// pass, and takes more outputs.
constexpr int SHARING_INPUTS = 1024, SHARING_OUTPUTS = 512;
// From so many rows on, a part of a panel in float16 is widened once for all rows instead of once in each tile. With vectors
// of 8 numbers that costs more than it saves.
constexpr int WIDENED_ROWS = LANES == 8 ? 1 << 30 : 24;

// Multiply some rows by some panels. x: [.., in], out: [.., out]. copies: see SHARING_INPUTS.
template <class Number>
void float_piece(const float* x, const Weight& weight, float* out, int64_t first_row, int64_t stop_row,
                 int64_t first_panel, int64_t stop_panel, bool copies) {
  const int64_t num_in = weight.num_inputs, num_out = weight.num_outputs, rows = stop_row - first_row;
  const Number* packed = static_cast<const Number*>(weight.values);
  const int64_t whole = std::min(stop_panel, num_out / PANEL);  // panels without padding
  alignas(64) float widened[SUMMED * PANEL];
  const float* inputs = x + first_row * num_in;  // of a pass; its rows are `distance` numbers apart
  int64_t distance = num_in;
  const auto tiles = [&](int64_t start, int64_t start_in_pass, int64_t depth, int64_t panel, const auto* part) {
    for (int64_t row = 0; row < rows; row += TILE_ROWS) {
      with_constant<TILE_ROWS>(std::min<int64_t>(TILE_ROWS, rows - row), [&](auto constant) {
        float_tile<constant, 1, false>(inputs + row * distance + start_in_pass, distance, part, 0, depth,
                                       out + (first_row + row) * num_out + panel * PANEL, num_out, start == 0);
      });
    }
  };
  for (int64_t pass = 0; pass < num_in; pass += PASS_INPUTS) {
    const int64_t stop_pass = std::min(pass + PASS_INPUTS, num_in);
    inputs = x + first_row * num_in + pass;
    if (copies) {
      distance = row_distance<float>(PASS_INPUTS);
      float* copy = scratch<Use::ROUNDED_ROWS, float>(PIECE_ROWS * distance);
      for (int64_t row = 0; row < rows; row++) std::copy_n(inputs + row * num_in, stop_pass - pass, copy + row * distance);
      inputs = copy;
    }
    int64_t panel = first_panel;
    if (rows <= TILE_ROWS_OF_TWO) {  // reading two streams is faster than one
      for (; panel + 2 <= whole; panel += 2) {
        for (int64_t start = pass; start < stop_pass; start += SUMMED) {
          with_constant<TILE_ROWS_OF_TWO>(rows, [&](auto constant) {
            float_tile<constant, 2, false>(x + first_row * num_in + start, num_in,
                                           packed + (panel * num_in + start) * PANEL, num_in * PANEL,
                                           std::min<int64_t>(SUMMED, num_in - start),
                                           out + first_row * num_out + panel * PANEL, num_out, start == 0);
          });
        }
      }
    }
    for (; panel < whole; panel++) {
      for (int64_t start = pass; start < stop_pass; start += SUMMED) {
        const int64_t depth = std::min<int64_t>(SUMMED, num_in - start);
        const Number* part = packed + (panel * num_in + start) * PANEL;
        if (std::is_same_v<Number, float> || rows < WIDENED_ROWS) {
          tiles(start, start - pass, depth, panel, part);
        } else {
          for (int64_t each = 0; each < depth * PANEL; each += LANES) store(widened + each, load(part + each));
          tiles(start, start - pass, depth, panel, widened);
        }
      }
    }
  }
  if (whole < stop_panel) {  // the last panel has padding: its sums go to a row apart
    float sums[PANEL] = {};
    for (int64_t row = first_row; row < stop_row; row++) {
      for (int64_t start = 0; start < num_in; start += SUMMED) {
        float_tile<1, 1, false>(x + row * num_in + start, num_in, packed + (whole * num_in + start) * PANEL, 0,
                                std::min<int64_t>(SUMMED, num_in - start), sums, PANEL, start == 0);
      }
      std::copy(sums, sums + (num_out - whole * PANEL), out + row * num_out + whole * PANEL);
    }
  }
}

}  // namespace

void float_product(const float* x, int64_t rows, const Weight& weight, const Epilogue& epilogue, float* out) {
  const int64_t panels = (weight.num_outputs + PANEL - 1) / PANEL;
  const bool copies = rows > PIECE_ROWS && weight.num_inputs % SHARING_INPUTS == 0;
  const auto piece = [&](int64_t row, int64_t stop_row, int64_t panel, int64_t stop_panel) {
    if (weight.kind == FLOAT32) {
      float_piece<float>(x, weight, out, row, stop_row, panel, stop_panel, copies);
    } else {
      float_piece<Half>(x, weight, out, row, stop_row, panel, stop_panel, copies);
    }
    if (weight.num_inputs == 0) {
      for (int64_t each = row; each < stop_row; each++) {
        int64_t first = panel * PANEL, stop = std::min(stop_panel * PANEL, weight.num_outputs);
        std::fill(out + each * weight.num_outputs + first, out + each * weight.num_outputs + stop, 0.0f);
      }
    }
    apply_epilogue(out, weight.num_outputs, epilogue, row, stop_row, panel, stop_panel);
  };
  for_pieces(rows, panels, piece, copies ? SHARING_OUTPUTS : PIECE_OUTPUTS_OF_MANY);
}

}  // namespace transept
