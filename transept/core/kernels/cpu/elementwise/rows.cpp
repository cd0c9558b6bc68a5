#include "rows.h"

#include <algorithm>
#include <cmath>

#include "../export.h"
#include "../parallel.h"
#include "math.h"

namespace transept {
namespace {

constexpr int PIECE_COLUMNS = 512;  // columns of a row in a piece of work

template <class Function>
void activate_row(float* x, int64_t size, const float* bias, Function function) {
  if (bias) {
    for (int64_t i = 0; i < size; i++) x[i] += bias[i];
  }
  for_vectors(x, size, [&](Floats numbers, int64_t) INLINE_LAMBDA { return function(numbers); });
}

}  // namespace

void activate_part(float* x, int64_t rows, int64_t columns, int64_t first, int64_t stop, const float* bias,
                   Activation activation) {
  const int64_t size = stop - first;
  const float* biases = bias ? bias + first : nullptr;
  for (int64_t row = 0; row < rows; row++) {
    float* part = x + row * columns + first;
    switch (activation) {
      case GELU: activate_row(part, size, biases, [](Floats x) INLINE_LAMBDA { return gelu(x); }); break;
      case GELU_TANH: activate_row(part, size, biases, [](Floats x) INLINE_LAMBDA { return gelu_tanh(x); }); break;
      case RELU: activate_row(part, size, biases, [](Floats x) INLINE_LAMBDA { return relu(x); }); break;
      case SILU: activate_row(part, size, biases, [](Floats x) INLINE_LAMBDA { return silu(x); }); break;
      case TANH: activate_row(part, size, biases, [](Floats x) INLINE_LAMBDA { return tanh(x); }); break;
    }
  }
}

void activate(float* x, int64_t rows, int64_t columns, const float* bias, Activation activation) {
  const int64_t pieces = (columns + PIECE_COLUMNS - 1) / PIECE_COLUMNS;
  parallel_for(rows * pieces, [&](int64_t piece) {
    const int64_t first = piece % pieces * PIECE_COLUMNS, stop = std::min<int64_t>(first + PIECE_COLUMNS, columns);
    activate_part(x + piece / pieces * columns, 1, columns, first, stop, bias, activation);
  });
}

void normalize(const float* x, int64_t rows, int64_t columns, const float* weight, const float* bias, float epsilon,
               float* out) {
  const int64_t whole = columns / LANES * LANES;
  for (int64_t row = 0; row < rows; row++, x += columns, out += columns) {
    float mean = 0;
    if (bias) {
      Floats sums = {};
      for (int64_t i = 0; i < whole; i += LANES) sums += load(x + i);
      mean = sum(sums);
      for (int64_t i = whole; i < columns; i++) mean += x[i];
      mean /= (float)columns;
    }
    Floats sums = {};
    for (int64_t i = 0; i < whole; i += LANES) {
      const Floats difference = load(x + i) - broadcast(mean);
      sums += difference * difference;
    }
    float squares = sum(sums);
    for (int64_t i = whole; i < columns; i++) squares += (x[i] - mean) * (x[i] - mean);
    const float scale = 1.0f / std::sqrt(squares / (float)columns + epsilon);
    if (bias) {
      for (int64_t i = 0; i < columns; i++) out[i] = (x[i] - mean) * scale * weight[i] + bias[i];
    } else {
      for (int64_t i = 0; i < columns; i++) out[i] = x[i] * scale * weight[i];
    }
  }
}

}  // namespace transept

EXPORT int64_t transept_activate(float* x, int64_t rows, int64_t columns, const float* bias, int64_t activation) {
  using namespace transept;
  return run_kernel([&] { activate(x, rows, columns, bias, static_cast<Activation>(activation)); });
}
