// How a product is cut into pieces of work, for floats and for int8 alike.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "../parallel.h"
#include "../simd.h"

namespace transept {

constexpr int BLOCK_ROWS = 48;               // that are multiplied with a part of a panel while both are in the first cache
constexpr int PIECE_ROWS = 2 * BLOCK_ROWS;   // of a piece of work
constexpr int PIECE_OUTPUTS = 64;            // of a piece of work
constexpr int PIECE_OUTPUTS_OF_MANY = 128;   // the same where rows are cut, too: they stay in the second cache
constexpr int ROWS_OF_FEW = 8;               // for which reading the weight takes longer than multiplying

// Call piece(first_row, stop_row, first_panel, stop_panel) for all pieces of a product.
template <class Piece>
void for_pieces(int64_t rows, int64_t panels, const Piece& piece) {
  int64_t row_parts = (rows + PIECE_ROWS - 1) / PIECE_ROWS;
  int64_t group = (rows <= PIECE_ROWS ? PIECE_OUTPUTS : PIECE_OUTPUTS_OF_MANY) / PANEL;
  int64_t panel_parts = (panels + group - 1) / group;
  parallel_for(row_parts * panel_parts, [&](int64_t index) {
    int64_t panel = index / row_parts * group, row = index % row_parts * PIECE_ROWS;
    piece(row, std::min(row + PIECE_ROWS, rows), panel, std::min(panel + group, panels));
  });
}

// Add the outputs' bias to some rows of some panels of out, [rows, num_outputs].
inline void add_bias(float* out, int64_t num_outputs, const float* bias, int64_t row, int64_t stop_row, int64_t panel,
                     int64_t stop_panel) {
  int64_t first = panel * PANEL, stop = std::min(stop_panel * PANEL, num_outputs);
  for (; row < stop_row; row++) {
    for (int64_t column = first; column < stop; column++) out[row * num_outputs + column] += bias[column];
  }
}

// Call body(std::integral_constant<int, N>) for N = number, 1 to MOST.
template <int MOST, class Body>
INLINE void with_constant(int64_t number, const Body& body) {
  if constexpr (MOST > 0) {
    if (number == MOST) {
      body(std::integral_constant<int, MOST>{});
    } else {
      with_constant<MOST - 1>(number, body);
    }
  }
}

}  // namespace transept
