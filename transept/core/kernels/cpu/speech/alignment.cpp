// Aligns the tokens of a text with time: a median filter and dynamic time warping over attention weights.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "../export.h"

namespace {

void exchange(float& a, float& b) {
  const float lower = a < b ? a : b;
  b = b < a ? a : b;
  a = lower;
}

enum Step : int8_t { LEFT, CORNER, ABOVE };

}  // namespace

// Medians of seven neighbours, by Paeth's network of 13 exchanges (Graphics Gems, 1990).
// padded: [rows, columns + 6]. out: [rows, columns].
EXPORT int64_t transept_medians_of_seven(const float* padded, int64_t rows, int64_t columns, float* out) {
  return transept::run_kernel([&] {
    for (int64_t row = 0; row < rows; row++, padded += columns + 6, out += columns) {
      for (int64_t i = 0; i < columns; i++) {
        float a = padded[i], b = padded[i + 1], c = padded[i + 2], d = padded[i + 3];
        float e = padded[i + 4], f = padded[i + 5], g = padded[i + 6];
        exchange(a, f), exchange(a, d), exchange(b, g), exchange(c, e), exchange(a, b), exchange(d, f), exchange(c, g);
        exchange(c, d), exchange(d, g), exchange(e, f), exchange(b, e), exchange(b, d), exchange(d, e);
        out[i] = d;
      }
    }
  });
}

// Find the cheapest path from the first to the last cell of a matrix by steps right, down or both (Sakoe & Chiba 1978). Among
// equally cheap ways into a cell it takes the one from the left, like openai-whisper.
// cost: [rows, columns], neither 0. path: room for [rows + columns, 2], row and column of each cell, from last to first.
// Returns the number of cells.
EXPORT int64_t transept_cheapest_path(const double* cost, int64_t rows, int64_t columns, int64_t* path) {
  using namespace transept;
  return run_kernel([&]() -> int64_t {
    const int64_t width = columns + 1;
    const double infinity = std::numeric_limits<double>::infinity();
    // A border precedes the first row and the first column.
    double* above_row = scratch<Use::PATH_COSTS, double>(2 * width);
    double* this_row = above_row + width;
    int8_t* steps = scratch<Use::PATH_STEPS, int8_t>((rows + 1) * width);  // from where the path enters a cell
    std::fill_n(above_row, width, infinity);
    std::fill_n(steps, (rows + 1) * width, (int8_t)LEFT);
    above_row[0] = 0;
    for (int64_t row = 1; row <= rows; row++) {
      this_row[0] = infinity;
      for (int64_t column = 1; column <= columns; column++) {
        const double corner = above_row[column - 1], above = above_row[column], left = this_row[column - 1];
        double best = left;
        if (corner < (above < left ? above : left)) {
          best = corner, steps[row * width + column] = CORNER;
        } else if (above < (corner < left ? corner : left)) {
          best = above, steps[row * width + column] = ABOVE;
        }
        this_row[column] = best + cost[(row - 1) * columns + column - 1];
      }
      std::swap(above_row, this_row);
    }
    int64_t length = 0;
    for (int64_t row = rows, column = columns; row && column; length++) {
      path[2 * length] = row - 1;
      path[2 * length + 1] = column - 1;
      const int8_t step = steps[row * width + column];
      row -= step != LEFT;
      column -= step != ABOVE;
    }
    return length;
  });
}
