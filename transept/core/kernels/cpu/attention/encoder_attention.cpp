// Attention of all tokens of a sequence over each other, without a bias, as in most encoders.
//
// Keys and values are packed once for each head. Queries are columns: blocks of PANEL of them, so that their softmax takes
// as many of them at a time as a vector has numbers. In float32 products are of float_tile; with weights in int8 queries,
// keys, values and weights are rounded to 16 bits, for integer_tile: each query and key to as many steps as a sum of 32
// bits has room for (5792 either way where a head has 64 numbers), each number of a head's values to VALUE_STEPS for all
// tokens, and a query's weights to as many as then have room. With weights in bfloat16 all are rounded to that.
#include <algorithm>
#include <cmath>

#include "../export.h"
#include "../gemm/pair_tile.h"
#include "../gemm/rounding.h"
#include "../parallel.h"
#include "../scratch.h"
#include "column_softmax.h"

namespace transept {
namespace {

constexpr float LOG2_E = 1.4426950408889634f;  // weights are powers of 2, not of e
constexpr int KEYS_AT_ONCE = 128;              // whose weights stay in the first cache while they meet their values
constexpr int VALUE_STEPS = 4095;
constexpr int TOKENS_TRANSPOSED = 16;  // at a time

// One sequence: query and out [tokens, heads, dim], key and value [tokens, kv_heads, dim]. Strides are of tokens.
struct Sequence {
  const float *query, *key, *value;
  float* out;
  int64_t query_stride, key_stride, value_stride;
  int64_t tokens, heads, kv_heads, dim;
};

// Put the keys and values of TILE_ROWS tokens of a head where tiles read them in order.
// keys: for each TILE_ROWS tokens [dim, TILE_ROWS]; values: for each TILE_ROWS dimensions [tokens, TILE_ROWS].
void pack_tokens(const Sequence& of, int64_t head, int64_t first, int64_t stop, float* keys, float* values) {
  const int64_t count = stop - first, dim = of.dim, whole = dim / TILE_ROWS * TILE_ROWS;
  for (int64_t i = 0; i < count; i++) {
    const float* key = of.key + (first + i) * of.key_stride + head * dim;
    for (int64_t d = 0; d < dim; d++) keys[first * dim + d * count + i] = key[d];
    const float* value = of.value + (first + i) * of.value_stride + head * dim;
    for (int64_t part = 0; part < whole; part += TILE_ROWS) {
      memcpy(values + part * of.tokens + (first + i) * TILE_ROWS, value + part, TILE_ROWS * sizeof(float));
    }
    for (int64_t d = whole; d < dim; d++) values[whole * of.tokens + (first + i) * (dim - whole) + d - whole] = value[d];
  }
}

// Write a head's columns to `count` tokens from `first` on.
void write_block(const Sequence& to, const float* columns, int64_t head, int64_t first, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    float* row = to.out + ((first + i) * to.heads + head) * to.dim;
    for (int64_t d = 0; d < to.dim; d++) row[d] = columns[d * PANEL + i];
  }
}

void attend_block(const Sequence& of, const float* keys, const float* values, float factor, int64_t head,
                  int64_t first) {
  const int64_t tokens = of.tokens, dim = of.dim, count = std::min<int64_t>(PANEL, tokens - first);
  float* queries = scratch<Use::QUERIES, float>(dim * PANEL);
  std::fill_n(queries, dim * PANEL, 0.0f);
  for (int64_t i = 0; i < count; i++) {
    const float* query = of.query + (first + i) * of.query_stride + head * dim;
    for (int64_t d = 0; d < dim; d++) queries[d * PANEL + i] = query[d] * factor;
  }
  float* scores = scratch<Use::SCORES, float>(tokens * PANEL);
  for (int64_t token = 0; token < tokens; token += TILE_ROWS) {
    with_constant<TILE_ROWS>(std::min<int64_t>(TILE_ROWS, tokens - token), [&](auto rows) {
      float_tile<rows, 1, true>(keys + token * dim, rows, queries, 0, dim, scores + token * PANEL, PANEL, true);
    });
  }
  float tops[PANEL], totals[PANEL] = {};
  column_highest(scores, tokens, tops);
  float* sums = scratch<Use::OUTPUTS, float>(dim * PANEL);
  for (int64_t key = 0; key < tokens; key += KEYS_AT_ONCE) {
    const int64_t depth = std::min<int64_t>(KEYS_AT_ONCE, tokens - key);
    column_exp2(scores + key * PANEL, depth, tops, totals);
    for (int64_t part = 0; part < dim; part += TILE_ROWS) {
      with_constant<TILE_ROWS>(std::min<int64_t>(TILE_ROWS, dim - part), [&](auto rows) {
        float_tile<rows, 1, true>(values + part * tokens + key * rows, rows, scores + key * PANEL, 0, depth,
                                  sums + part * PANEL, PANEL, key == 0);
      });
    }
  }
  divide_columns(sums, dim, totals);
  write_block(of, sums, head, first, count);
}

// Round each number of a head's values by its largest of all tokens; values: [dim, tokens], filled up to pairs.
void round_values(const Sequence& of, int64_t head, int16_t* values, float* scales) {
  const int64_t tokens = of.tokens, dim = of.dim, depth = tokens + tokens % 2;
  float* factors = scratch<Use::OUTPUTS, float>(dim);
  std::fill_n(factors, dim, 0.0f);
  for (int64_t token = 0; token < tokens; token++) {
    const float* value = of.value + token * of.value_stride + head * dim;
    for (int64_t d = 0; d < dim; d++) {  // the order of positive floats is that of their bits, NaN above all
      const int32_t size = bits_as<int32_t>(value[d]) & 0x7fffffff;
      factors[d] = bits_as<float>(std::max(size, bits_as<int32_t>(factors[d])));
    }
  }
  for (int64_t d = 0; d < dim; d++) {
    scales[d] = factors[d] / VALUE_STEPS;
    factors[d] = factors[d] != 0 ? VALUE_STEPS / factors[d] : 0;
  }
  for (int64_t first = 0; first < tokens; first += TOKENS_TRANSPOSED) {
    const int64_t stop = std::min<int64_t>(first + TOKENS_TRANSPOSED, tokens);
    for (int64_t d = 0; d < dim; d++) {
      for (int64_t token = first; token < stop; token++) {
        const float scaled = of.value[token * of.value_stride + head * dim + d] * factors[d] + TO_INTEGER;
        values[d * depth + token] = (int16_t)bits_as<int32_t>(scaled);
      }
    }
  }
  if (tokens % 2) {
    for (int64_t d = 0; d < dim; d++) values[d * depth + tokens] = 0;
  }
}

// keys: [tokens, dim], values: [dim, tokens], each filled up to pairs.
void attend_rounded_block(const Sequence& of, const int16_t* keys, const float* key_scales, const int16_t* values,
                          const float* value_scales, float factor, int steps, int64_t head, int64_t first) {
  const int64_t tokens = of.tokens, dim = of.dim, count = std::min<int64_t>(PANEL, tokens - first);
  const int64_t depth = dim + dim % 2, token_depth = tokens + tokens % 2;
  int16_t* queries = scratch<Use::QUERIES, int16_t>((PANEL + 1) * depth);
  int16_t* row = queries + PANEL * depth;
  float query_scales[PANEL] = {};
  std::fill_n(queries, PANEL * depth, 0);
  for (int64_t i = 0; i < count; i++) {
    const float* query = of.query + (first + i) * of.query_stride + head * dim;
    query_scales[i] = round_row(query, dim, row, depth, steps) * factor;
    for (int64_t d = 0; d < depth; d += 2) memcpy(queries + d * PANEL + 2 * i, row + d, 4);
  }
  float* scores = scratch<Use::SCORES, float>(token_depth * PANEL);
  for (int64_t token = 0; token < tokens; token += TILE_ROWS) {
    with_constant<TILE_ROWS>(std::min<int64_t>(TILE_ROWS, tokens - token), [&](auto rows) {
      integer_tile<rows, 1>(keys + token * depth, depth, queries, key_scales + token, query_scales,
                            scores + token * PANEL, PANEL);
    });
  }
  float tops[PANEL], totals[PANEL] = {}, factors[PANEL];
  column_highest(scores, tokens, tops);
  column_exp2(scores, tokens, tops, totals);
  std::fill(scores + tokens * PANEL, scores + token_depth * PANEL, 0.0f);
  const float room = (float)(INT32_MAX / VALUE_STEPS - tokens);  // each weight may be rounded up
  for (int i = 0; i < PANEL; i++) {
    factors[i] = std::min(32767.0f, room / totals[i]);
    totals[i] = 0;
  }
  int16_t* weights = scratch<Use::WEIGHTS, int16_t>(token_depth * PANEL);
  round_column_pairs(scores, token_depth, factors, totals, weights);
  invert_totals(totals);
  float* sums = scratch<Use::OUTPUTS, float>(dim * PANEL);
  for (int64_t d = 0; d < dim; d += TILE_ROWS) {
    with_constant<TILE_ROWS>(std::min<int64_t>(TILE_ROWS, dim - d), [&](auto rows) {
      integer_tile<rows, 1>(values + d * token_depth, token_depth, weights, value_scales + d, totals, sums + d * PANEL,
                            PANEL);
    });
  }
  write_block(of, sums, head, first, count);
}

// keys: [tokens, dim], values: [dim, tokens], each filled up to pairs.
void attend_bfloat16_block(const Sequence& of, const BFloat16* keys, const BFloat16* values, float factor, int64_t head,
                           int64_t first) {
  const int64_t tokens = of.tokens, dim = of.dim, count = std::min<int64_t>(PANEL, tokens - first);
  const int64_t depth = dim + dim % 2, token_depth = tokens + tokens % 2;
  BFloat16* queries = scratch<Use::QUERIES, BFloat16>((PANEL + 1) * depth);
  BFloat16* row = queries + PANEL * depth;
  std::fill_n(queries, PANEL * depth, BFloat16{0});
  for (int64_t i = 0; i < count; i++) {
    round_row_to_bfloat16(of.query + (first + i) * of.query_stride + head * dim, dim, row, depth);
    for (int64_t d = 0; d < depth; d += 2) memcpy(queries + d * PANEL + 2 * i, row + d, 4);
  }
  float* scores = scratch<Use::SCORES, float>(token_depth * PANEL);
  for (int64_t token = 0; token < tokens; token += TILE_ROWS) {
    with_constant<TILE_ROWS>(std::min<int64_t>(TILE_ROWS, tokens - token), [&](auto rows) {
      bfloat16_tile<rows, 1>(keys + token * depth, depth, queries, scores + token * PANEL, PANEL);
    });
  }
  float tops[PANEL], totals[PANEL] = {};
  column_highest(scores, tokens, tops);
  BFloat16* weights = scratch<Use::WEIGHTS, BFloat16>(token_depth * PANEL);
  column_exp2_pairs(scores, tokens, tops, factor, totals, weights);
  float* sums = scratch<Use::OUTPUTS, float>(dim * PANEL);
  for (int64_t d = 0; d < dim; d += TILE_ROWS) {
    with_constant<TILE_ROWS>(std::min<int64_t>(TILE_ROWS, dim - d), [&](auto rows) {
      bfloat16_tile<rows, 1>(values + d * token_depth, token_depth, weights, sums + d * PANEL, PANEL);
    });
  }
  divide_columns(sums, dim, totals);
  write_block(of, sums, head, first, count);
}

// Call block(head, kv_head, first) for all blocks of PANEL queries.
template <class Block>
void for_blocks(const Sequence& of, const Block& block) {
  const int64_t blocks = (of.tokens + PANEL - 1) / PANEL;
  parallel_for(of.heads * blocks, [&](int64_t index) {
    const int64_t head = index / blocks;
    block(head, head / (of.heads / of.kv_heads), index % blocks * PANEL);
  });
}

void attend(const Sequence& of, float scale) {
  const int64_t tokens = of.tokens, size = tokens * of.dim, tiles = (tokens + TILE_ROWS - 1) / TILE_ROWS;
  float* keys = scratch<Use::KEYS, float>(of.kv_heads * size);
  float* values = scratch<Use::VALUES, float>(of.kv_heads * size);
  parallel_for(of.kv_heads * tiles, [&](int64_t index) {
    const int64_t head = index / tiles, first = index % tiles * TILE_ROWS;
    pack_tokens(of, head, first, std::min(first + TILE_ROWS, tokens), keys + head * size, values + head * size);
  });
  for_blocks(of, [&](int64_t head, int64_t kv_head, int64_t first) {
    attend_block(of, keys + kv_head * size, values + kv_head * size, scale * LOG2_E, head, first);
  });
}

void attend_rounded(const Sequence& of, float scale) {
  const int64_t tokens = of.tokens, dim = of.dim, depth = dim + dim % 2, token_depth = tokens + tokens % 2;
  const int steps = (int)std::min(32767.0, std::floor(std::sqrt((double)(INT32_MAX / dim))));
  int16_t* keys = scratch<Use::KEYS, int16_t>(of.kv_heads * tokens * depth);
  float* key_scales = scratch<Use::KEY_SCALES, float>(of.kv_heads * tokens);
  int16_t* values = scratch<Use::VALUES, int16_t>(of.kv_heads * dim * token_depth);
  float* value_scales = scratch<Use::VALUE_SCALES, float>(of.kv_heads * dim);
  parallel_for(of.kv_heads, [&](int64_t head) {
    for (int64_t token = 0; token < tokens; token++) {
      const float* key = of.key + token * of.key_stride + head * dim;
      key_scales[head * tokens + token] = round_row(key, dim, keys + (head * tokens + token) * depth, depth, steps);
    }
    round_values(of, head, values + head * dim * token_depth, value_scales + head * dim);
  });
  for_blocks(of, [&](int64_t head, int64_t kv, int64_t first) {
    attend_rounded_block(of, keys + kv * tokens * depth, key_scales + kv * tokens, values + kv * dim * token_depth,
                         value_scales + kv * dim, scale * LOG2_E, steps, head, first);
  });
}

void attend_bfloat16(const Sequence& of, float scale) {
  const int64_t tokens = of.tokens, dim = of.dim, depth = dim + dim % 2, token_depth = tokens + tokens % 2;
  BFloat16* keys = scratch<Use::KEYS, BFloat16>(of.kv_heads * tokens * depth);
  BFloat16* values = scratch<Use::VALUES, BFloat16>(of.kv_heads * dim * token_depth);
  const int64_t parts = (tokens + TOKENS_TRANSPOSED - 1) / TOKENS_TRANSPOSED;
  parallel_for(of.kv_heads * parts, [&](int64_t index) {
    const int64_t head = index / parts, first = index % parts * TOKENS_TRANSPOSED;
    const int64_t stop = std::min(first + TOKENS_TRANSPOSED, tokens);
    BFloat16* row = scratch<Use::OUTPUTS, BFloat16>(TOKENS_TRANSPOSED * dim);
    for (int64_t token = first; token < stop; token++) {
      round_row_to_bfloat16(of.key + token * of.key_stride + head * dim, dim, keys + (head * tokens + token) * depth, depth);
      round_row_to_bfloat16(of.value + token * of.value_stride + head * dim, dim, row + (token - first) * dim, dim);
    }
    BFloat16* to = values + head * dim * token_depth + first;
    const int64_t count = stop - first;
    for (int64_t d = 0; d < dim; d++, to += token_depth) {
      for (int64_t token = 0; token < count; token++) to[token] = row[token * dim + d];
      if (count % 2) to[count] = BFloat16{0};
    }
  });
  for_blocks(of, [&](int64_t head, int64_t kv, int64_t first) {
    attend_bfloat16_block(of, keys + kv * tokens * depth, values + kv * dim * token_depth, scale * LOG2_E, head, first);
  });
}

}  // namespace
}  // namespace transept

// The same fields as transept::Sequence.
EXPORT void transept_attend_sequence(const transept::Sequence* sequence, float scale) {
  transept::attend(*sequence, scale);
}

EXPORT void transept_attend_sequence_in_int16(const transept::Sequence* sequence, float scale) {
  transept::attend_rounded(*sequence, scale);
}

EXPORT void transept_attend_sequence_in_bfloat16(const transept::Sequence* sequence, float scale) {
  transept::attend_bfloat16(*sequence, scale);
}
