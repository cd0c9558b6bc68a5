// Rounding steps of the queries, keys and values of encoder attention in integers.
#pragma once

#include "encoder_blocks.h"

namespace transept {

// The rounding step of each token's query and key.
struct TokenSteps {
  float* queries;  // [heads, tokens padded to blocks]
  float* keys;     // [kv_heads, tokens]

  float* queries_of(const Sequence& of, int64_t head, int64_t block) const {
    return queries + (head * of.blocks() + block) * PANEL;
  }
};

// Return the larger of |a| and b. Positive floats have the order of their bits, NaN above all.
INLINE float larger_size(float a, float b) {
  return bits_as<float>(std::max(bits_as<int32_t>(a) & 0x7fffffff, bits_as<int32_t>(b)));
}

// The rounding step of each number of a head's values, shared by all tokens.
class ValueSteps {
 public:
  // most: steps of the largest number.
  ValueSteps(const Sequence& of, int most)
      : most_((float)most),
        padded_dim_((of.dim + LANES - 1) / LANES * LANES),
        steps_(scratch<Use::VALUE_SCALES, float>(2 * of.kv_heads * padded_dim_ + of.blocks() * of.kv_heads * of.dim)),
        factors_(steps_ + of.kv_heads * padded_dim_),
        largest_(factors_ + of.kv_heads * padded_dim_) {}

  // Take the values of a block into account. Blocks come in any order, from any thread.
  void see(const Sequence& of, int64_t block, int64_t first, int64_t stop) const {
    const int64_t size = of.kv_heads * of.dim;
    float* largest = largest_ + block * size;
    std::fill_n(largest, size, 0.0f);
    for (int64_t token = first; token < stop; token++) {
      const float* value = of.value_of(token, 0);
      for (int64_t d = 0; d < size; d++) largest[d] = larger_size(value[d], largest[d]);
    }
  }

  // Compute the steps, after all blocks were seen.
  void find(const Sequence& of) const {
    for (int64_t head = 0; head < of.kv_heads; head++) {
      for (int64_t d = 0; d < of.dim; d++) {
        float size = 0;
        for (int64_t block = 0; block < of.blocks(); block++) {
          size = larger_size(largest_[(block * of.kv_heads + head) * of.dim + d], size);
        }
        steps_[head * padded_dim_ + d] = size / most_;
        factors_[head * padded_dim_ + d] = size != 0 ? most_ / size : 0;
      }
    }
  }

  const float* of(int64_t kv_head) const { return steps_ + kv_head * padded_dim_; }
  const float* factors_of(int64_t kv_head) const { return factors_ + kv_head * padded_dim_; }  // 1 / step

 private:
  float most_;
  int64_t padded_dim_;
  float *steps_, *factors_, *largest_;  // [kv_heads, dim padded to vectors]; largest_: [blocks, kv_heads, dim]
};

}  // namespace transept
