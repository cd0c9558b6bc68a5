// The middle of a Conformer's convolution module: a gated linear unit, then a depthwise convolution over time, then an
// activation. Reads and writes each number once.
#include <algorithm>

#include "../export.h"
#include "../parallel.h"
#include "math.h"
#include "rows.h"

namespace transept {
namespace {

constexpr int64_t TOKENS_AT_ONCE = 64, CHANNELS_AT_ONCE = 128;

struct Convolution {
  const float* x;  // [tokens, 2, channels]: values, then gates
  float* out;      // [tokens, channels]
  const float *weight, *bias;  // [taps, channels], and [channels] or null
  int64_t channels, taps, before;
};

// gated = values * sigmoid(gates), [stop - first, count], of tokens from `first` on; zeros outside of the sequence.
void gate(const Convolution& of, int64_t begin, int64_t end, int64_t first, int64_t stop, int64_t channel, int64_t count,
          float* gated) {
  for (int64_t token = first; token < stop; token++, gated += CHANNELS_AT_ONCE) {
    if (token < begin || token >= end) {
      std::fill_n(gated, CHANNELS_AT_ONCE, 0.0f);
      continue;
    }
    const float* gates = of.x + (2 * token + 1) * of.channels + channel;
    const float* values = gates - of.channels;
    std::copy_n(gates, count, gated);
    for_vectors(gated, count, [](Floats numbers, int64_t) INLINE_LAMBDA { return sigmoid(numbers); });
    for (int64_t i = 0; i < count; i++) gated[i] *= values[i];
  }
}

// Convolve a block of tokens and channels of one sequence, which has the tokens `begin` to `end` - 1.
void convolve_block(const Convolution& of, int64_t begin, int64_t end, int64_t first, int64_t channel, int64_t activation) {
  const int64_t stop = std::min(first + TOKENS_AT_ONCE, end), count = std::min(CHANNELS_AT_ONCE, of.channels - channel);
  float* gated = scratch<Use::HIDDEN, float>((TOKENS_AT_ONCE + of.taps) * CHANNELS_AT_ONCE);
  gate(of, begin, end, first - of.before, stop - of.before + of.taps - 1, channel, count, gated);
  for (int64_t token = first; token < stop; token++, gated += CHANNELS_AT_ONCE) {
    float* out = of.out + token * of.channels + channel;
    if (of.bias) {
      std::copy_n(of.bias + channel, count, out);
    } else {
      std::fill_n(out, count, 0.0f);
    }
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
      Floats sums = load(out + i);
      for (int64_t tap = 0; tap < of.taps; tap++) {
        sums += load(gated + tap * CHANNELS_AT_ONCE + i) * load(of.weight + tap * of.channels + channel + i);
      }
      store(out + i, sums);
    }
    for (; i < count; i++) {
      for (int64_t tap = 0; tap < of.taps; tap++) {
        out[i] += gated[tap * CHANNELS_AT_ONCE + i] * of.weight[tap * of.channels + channel + i];
      }
    }
    if (activation >= 0) activate_part(out, 1, count, 0, count, nullptr, static_cast<Activation>(activation));
  }
}

}  // namespace
}  // namespace transept

// starts: [sequences + 1], of the first token of each sequence, and the end. before: taps for tokens before a token's own.
// activation: see rows.h, or -1 for none.
EXPORT int64_t transept_gate_and_convolve(const float* x, const int64_t* starts, int64_t sequences, int64_t channels,
                                          const float* weight, const float* bias, int64_t taps, int64_t before,
                                          int64_t activation, float* out) {
  using namespace transept;
  return run_kernel([&] {
    const Convolution of{x, out, weight, bias, channels, taps, before};
    const int64_t parts = (channels + CHANNELS_AT_ONCE - 1) / CHANNELS_AT_ONCE;
    int64_t blocks = 0;
    for (int64_t i = 0; i < sequences; i++) blocks += (starts[i + 1] - starts[i] + TOKENS_AT_ONCE - 1) / TOKENS_AT_ONCE;
    parallel_for(blocks * parts, [&](int64_t piece) {
      int64_t sequence = 0, block = piece / parts;
      for (;; sequence++) {
        const int64_t own = (starts[sequence + 1] - starts[sequence] + TOKENS_AT_ONCE - 1) / TOKENS_AT_ONCE;
        if (block < own) break;
        block -= own;
      }
      const int64_t begin = starts[sequence], end = starts[sequence + 1];
      convolve_block(of, begin, end, begin + block * TOKENS_AT_ONCE, piece % parts * CHANNELS_AT_ONCE, activation);
    });
  });
}
