// The sum of a sublayer's input and output, and the norm that follows. Each row is read and written once.
#include <algorithm>

#include "../export.h"
#include "../parallel.h"
#include "rows.h"

namespace transept {
namespace {

constexpr int64_t ROWS_OF_PIECE = 16;

// to = x + y, all [size].
void add(const float* x, const float* y, int64_t size, float* to) {
  for (int64_t i = 0; i < size; i++) to[i] = x[i] + y[i];
}

}  // namespace
}  // namespace transept

// normed = norm(x + y) and total = x + y + addend, all [rows, columns] but addend, [columns]. y, addend and total may be null.
// weight, bias: [columns]; bias is null for an RMS norm.
EXPORT int64_t transept_add_and_norm(const float* x, const float* y, const float* addend, const float* weight,
                                     const float* bias, float epsilon, int64_t rows, int64_t columns, float* total,
                                     float* normed) {
  using namespace transept;
  return run_kernel([&] {
    parallel_for((rows + ROWS_OF_PIECE - 1) / ROWS_OF_PIECE, [&](int64_t piece) {
      const int64_t stop = std::min((piece + 1) * ROWS_OF_PIECE, rows);
      for (int64_t row = piece * ROWS_OF_PIECE; row < stop; row++) {
        const float* from = x + row * columns;
        float* to = normed + row * columns;
        if (y) {
          float* sums = total ? total + row * columns : to;
          add(from, y + row * columns, columns, sums);
          from = sums;
        }
        normalize(from, 1, columns, weight, bias, epsilon, to);
        if (total && (addend || !y)) {
          float* kept = total + row * columns;
          if (!y) std::copy(from, from + columns, kept);
          if (addend) add(kept, addend, columns, kept);
        }
      }
    });
  });
}
