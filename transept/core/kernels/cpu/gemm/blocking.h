// How a product is cut into pieces of work, for all kinds of numbers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "../parallel.h"
#include "../isa.h"
#include "weight.h"

namespace transept {

constexpr int BLOCK_ROWS = 48;               // rows multiplied by a part of a panel while both are in the first cache
constexpr int PIECE_ROWS = 2 * BLOCK_ROWS;   // rows of a piece of work
constexpr int PIECE_OUTPUTS = 64;            // outputs of a piece of work
constexpr int PIECE_OUTPUTS_OF_MANY = 128;   // the same if rows are also cut: they stay in the second cache
constexpr int ROWS_OF_FEW = 8;               // up to so many, reading the weight takes longer than multiplying

// Return the distance, in numbers, at which to store rows that a tile reads side by side. It is whole lines of 64 bytes, but
// not a multiple of 16 lines: such rows share a few sets of the first cache, which have no room for 12 rows.
template <class Number>
int64_t row_distance(int64_t size) {
  const int64_t lines = (size * (int64_t)sizeof(Number) + 63) / 64;
  return (lines + (lines % 16 == 0)) * 64 / (int64_t)sizeof(Number);
}

// Call each(row) for all rows.
template <class Each>
void for_rows(int64_t rows, const Each& each) {
  if (rows <= ROWS_OF_FEW) {  // starting threads would take longer
    for (int64_t row = 0; row < rows; row++) each(row);
  } else {
    parallel_for(rows, each);
  }
}

// Call piece(first_row, stop_row, first_panel, stop_panel) for all pieces of a product. outputs_of_many: outputs of a piece
// if rows are also cut.
template <class Piece>
void for_pieces(int64_t rows, int64_t panels, const Piece& piece, int64_t outputs_of_many = PIECE_OUTPUTS_OF_MANY) {
  int64_t row_parts = (rows + PIECE_ROWS - 1) / PIECE_ROWS;
  int64_t group = (rows <= PIECE_ROWS ? PIECE_OUTPUTS : outputs_of_many) / PANEL;
  int64_t panel_parts = (panels + group - 1) / group;
  parallel_for(row_parts * panel_parts, [&](int64_t index) {
    int64_t panel = index / row_parts * group, row = index % row_parts * PIECE_ROWS;
    piece(row, std::min(row + PIECE_ROWS, rows), panel, std::min(panel + group, panels));
  });
}

// Apply an epilogue to some rows of some panels of out, [rows, num_outputs], while they are in the second cache.
inline void apply_epilogue(float* out, int64_t num_outputs, const Epilogue& epilogue, int64_t row, int64_t stop_row,
                           int64_t panel, int64_t stop_panel) {
  const int64_t first = panel * PANEL, stop = std::min(stop_panel * PANEL, num_outputs);
  if (epilogue.activates) {
    activate_part(out + row * num_outputs, stop_row - row, num_outputs, first, stop, epilogue.bias, epilogue.activation);
  } else if (epilogue.bias) {
    for (; row < stop_row; row++) {
      for (int64_t column = first; column < stop; column++) out[row * num_outputs + column] += epilogue.bias[column];
    }
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

// Call tile(rows, panels, row, panel, out, out_stride) for all tiles of a piece of work. `rows` and `panels` are constants,
// and a tile sums up all inputs. out: [.., num_outputs].
template <class Tile>
void for_tiles(int64_t first_row, int64_t stop_row, int64_t first_panel, int64_t stop_panel, int64_t num_outputs,
               float* out, const Tile& tile) {
  const std::integral_constant<int, 1> one;
  const std::integral_constant<int, 2> two;
  const int64_t whole = std::min(stop_panel, num_outputs / PANEL);  // panels without padding
  for (int64_t block = first_row; block < stop_row; block += BLOCK_ROWS) {
    const int64_t stop = std::min<int64_t>(block + BLOCK_ROWS, stop_row);
    int64_t panel = first_panel;
    if (stop - block <= TILE_ROWS_OF_TWO) {  // reading two streams is faster than one
      for (; panel + 2 <= whole; panel += 2) {
        with_constant<TILE_ROWS_OF_TWO>(stop - block, [&](auto rows) {
          tile(rows, two, block, panel, out + block * num_outputs + panel * PANEL, num_outputs);
        });
      }
    }
    for (; panel < whole; panel++) {
      for (int64_t row = block; row < stop; row += TILE_ROWS) {
        with_constant<TILE_ROWS>(std::min<int64_t>(TILE_ROWS, stop - row), [&](auto rows) {
          tile(rows, one, row, panel, out + row * num_outputs + panel * PANEL, num_outputs);
        });
      }
    }
  }
  if (whole < stop_panel) {  // the last panel has padding: its sums go to a row apart
    float sums[PANEL];
    for (int64_t row = first_row; row < stop_row; row++) {
      tile(one, one, row, whole, sums, PANEL);
      std::copy(sums, sums + (num_outputs - whole * PANEL), out + row * num_outputs + whole * PANEL);
    }
  }
}

}  // namespace transept
