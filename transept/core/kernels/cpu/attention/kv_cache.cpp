// Writes rows of keys or values to a cache.
#include "../export.h"
#include "../parallel.h"
#include "../isa.h"

namespace transept {
namespace {

constexpr int64_t ROWS_OF_PIECE = 32;

template <class Number>
void copy_rows(const float* from, int64_t rows, int64_t stride, int64_t size, Number* to) {
  parallel_for((rows + ROWS_OF_PIECE - 1) / ROWS_OF_PIECE, [&](int64_t piece) {
    for (int64_t row = piece * ROWS_OF_PIECE; row < std::min((piece + 1) * ROWS_OF_PIECE, rows); row++) {
      copy_row(from + row * stride, size, to + row * size);
    }
  });
}

}  // namespace
}  // namespace transept

// Copy rows, [rows, size] with `stride` numbers between them, to contiguous rows of float32, or of float16 (is_half 1).
EXPORT int64_t transept_copy_rows(const float* from, int64_t rows, int64_t stride, int64_t size, int64_t is_half, void* to) {
  return transept::run_kernel([&] {
    if (is_half) {
      transept::copy_rows(from, rows, stride, size, static_cast<transept::Half*>(to));
    } else {
      transept::copy_rows(from, rows, stride, size, static_cast<float*>(to));
    }
  });
}
