// The highest logit of each row and its log probability, in two passes over the row.
#include <cmath>
#include <limits>

#include "../export.h"
#include "../parallel.h"
#include "../scratch.h"
#include "math.h"

namespace transept {
namespace {

constexpr int64_t PIECE_LOGITS = 4096;

// Find the highest logit, `top`, ignoring NaN, and the sum of exp(logit - top). logits: [size].
void reduce_piece(const float* logits, int64_t size, float& top, float& total) {
  const float none = -std::numeric_limits<float>::infinity();
  const int64_t whole = size / LANES * LANES;
  Floats tops = broadcast(none);
  for (int64_t i = 0; i < whole; i += LANES) tops = maximum(load(logits + i), tops);
  top = highest(tops);
  for (int64_t i = whole; i < size; i++) top = logits[i] > top ? logits[i] : top;
  total = 0;
  if (!(top > none)) return;
  Floats sums = {};
  for (int64_t i = 0; i < whole; i += LANES) sums += exp(load(logits + i) - broadcast(top));
  total = sum(sums);
  for (int64_t i = whole; i < size; i++) total += of_one([](Floats x) { return exp(x); }, logits[i] - top);
}

}  // namespace
}  // namespace transept

// logits: [rows, size]. tokens: [rows], the first of equally high ones. logprobs: [rows].
EXPORT int64_t transept_argmax(const float* logits, int64_t rows, int64_t size, int64_t* tokens, float* logprobs) {
  using namespace transept;
  return run_kernel([&] {
    const int64_t pieces = (size + PIECE_LOGITS - 1) / PIECE_LOGITS;
    float* tops = scratch<Use::PIECE_TOPS, float>(2 * rows * pieces);
    float* sums = tops + rows * pieces;
    parallel_for(rows * pieces, [&](int64_t index) {
      const int64_t row = index / pieces, first = index % pieces * PIECE_LOGITS;
      reduce_piece(logits + row * size + first, std::min(PIECE_LOGITS, size - first), tops[index], sums[index]);
    });
    for (int64_t row = 0; row < rows; row++, tops += pieces, sums += pieces, logits += size) {
      int64_t best = 0;
      for (int64_t piece = 0; piece < pieces; piece++) {
        if (tops[piece] > tops[best]) best = piece;
      }
      float total = 0;
      for (int64_t piece = 0; piece < pieces; piece++) {
        total += sums[piece] * of_one([](Floats x) { return exp(x); }, tops[piece] - tops[best]);
      }
      int64_t token = best * PIECE_LOGITS;
      while (logits[token] != tops[best] && token < size - 1) token++;  // a row of NaNs has no such token
      tokens[row] = token;
      logprobs[row] = -std::log(total);
    }
  });
}
