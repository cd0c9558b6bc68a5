// The feed-forward network of a layer by AMX, for many rows: fc2(activation(fc1(x) + bias)) + bias. A thread takes some rows
// through both products, so that the hidden states stay in its second cache.
#include "../export.h"
#include "../gemm/amx.h"
#include "../gemm/amx_blocks.h"
#include "linear.h"

namespace transept {

// The same fields as in feed_forward.py.
struct FeedForward {
  Linear fc1, fc2;
  int64_t activation;
};

namespace {

#if defined(TRANSEPT_EMULATE_AMX) || defined(__AMX_TILE__)

constexpr int64_t MOST_ROWS = 128;  // rows that a thread takes at a time

// Add the network's output for some rows of x, [rows, in], to out, [rows, out].
template <Numbers NUMBERS>
void feed_rows_forward(const float* x, int64_t rows, const FeedForward& layer, float* out) {
  using Rows = RoundedRows<NUMBERS>;
  using Sum = typename Rows::Sum;
  const Weight &fc1 = *layer.fc1.weight, &fc2 = *layer.fc2.weight;
  const int64_t num_in = fc1.num_inputs, inner = fc1.num_outputs;
  const Epilogue activation{layer.fc1.bias, true, static_cast<Activation>(layer.activation)}, bias{layer.fc2.bias};
  const auto inputs = Rows::template make<Use::ROUNDED_ROWS, Use::ROW_OFFSETS, Use::ROW_STEPS>(rows, num_in);
  const auto hidden = Rows::template make<Use::HIDDEN_ROWS, Use::HIDDEN_OFFSETS, Use::HIDDEN_STEPS>(rows, inner);
  float* numbers = Rows::OF_BYTES ? scratch<Use::HIDDEN, float>(rows * inner) : nullptr;
  for (int64_t row = 0; row < rows; row++) inputs.put(row, x + row * num_in, num_in);
  multiply_blocks<NUMBERS>(
      inputs.tiled, TiledPanels(fc1.values, inputs.tiled.steps), 0, rows, 0, inner / PANEL,
      [&](Sum* sums, int64_t row, int64_t panel, int64_t first, int64_t stop) INLINE_LAMBDA {
        float* products = inputs.products(sums, first, stop, row, panel, fc1);
        apply_to_block(products, first, stop, panel, inner, activation);
        if constexpr (Rows::OF_BYTES) {  // the step of a row depends on all of its numbers
          write_rows(products, first, stop, row, panel, inner, numbers);
        } else {  // a panel's outputs fill a tile's row
          for (int64_t r = first; r < stop; r++) {
            BFloat16 rounded[PANEL];
            round_row_to_bfloat16(products + r * BLOCK, PANEL, rounded, PANEL);
            memcpy(hidden.tiled.of(row + r) + panel * TILE_BYTES, rounded, ROW_BYTES);
          }
        }
      });
  if constexpr (Rows::OF_BYTES) {
    for (int64_t row = 0; row < rows; row++) hidden.put(row, numbers + row * inner, inner);
  }
  multiply_blocks<NUMBERS>(
      hidden.tiled, TiledPanels(fc2.values, hidden.tiled.steps), 0, rows, 0, (fc2.num_outputs + PANEL - 1) / PANEL,
      [&](Sum* sums, int64_t row, int64_t panel, int64_t first, int64_t stop) INLINE_LAMBDA {
        float* products = hidden.products(sums, first, stop, row, panel, fc2);
        apply_to_block(products, first, stop, panel, fc2.num_outputs, bias);
        write_rows<true>(products, first, stop, row, panel, fc2.num_outputs, out);
      });
}

void feed_forward(const float* x, int64_t rows, const FeedForward& layer, float* out) {
  const Weight &fc1 = *layer.fc1.weight, &fc2 = *layer.fc2.weight;
  const int64_t turns = (rows + num_threads() * MOST_ROWS - 1) / (num_threads() * MOST_ROWS);  // pieces of each thread
  const int64_t pieces = std::max<int64_t>(1, turns * num_threads());
  const int64_t size = ((rows + pieces - 1) / pieces + BLOCK - 1) / BLOCK * BLOCK;
  parallel_for((rows + size - 1) / size, [&](int64_t piece) {
    const int64_t first = piece * size, count = std::min(size, rows - first);
    const float* from = x + first * fc1.num_inputs;
    float* to = out + first * fc2.num_outputs;
    if (fc1.kind == BFLOAT16) {
      feed_rows_forward<Numbers::BFLOAT16>(from, count, layer, to);
    } else {
      feed_rows_forward<Numbers::SIGNED_BY_UNSIGNED>(from, count, layer, to);
    }
  });
}

#else

void feed_forward(const float*, int64_t, const FeedForward&, float*) { std::abort(); }

#endif

}  // namespace
}  // namespace transept

// Add the network's output to out, [rows, out]. x: [rows, in]. Both weights are in bfloat16, or both in int8 for rows in int8,
// and their inputs fill whole rows of tiles.
EXPORT int64_t transept_add_feed_forward(const float* x, int64_t rows, const transept::FeedForward* layer, float* out) {
  return transept::run_kernel([&] { transept::feed_forward(x, rows, *layer, out); });
}
