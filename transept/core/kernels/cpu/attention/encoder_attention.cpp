// Attention of all tokens of a sequence over each other, without a bias, as in most encoders.
//
// Queries, keys and values are packed once, token by token for all heads, since a row of a token lies in one piece. Queries
// are columns: blocks of PANEL of them, so that their softmax takes as many of them at a time as a vector has numbers. A
// block goes through the keys KEYS_AT_ONCE at a time, whose scores and weights stay in the first cache; when a higher
// score than before is seen, what was summed up becomes less (Milakov and Gimelshein 2018).
//
// In float32 products are of float_tile. With weights in bfloat16 all are rounded to that, for bfloat16_tile. With weights
// in int8 queries, keys, values and weights are rounded to 16 bits, for sums of integers: each query and key to as many
// steps as a sum of 32 bits has room for (5792 either way where a head has 64 numbers), each number of a head's values to
// VALUE_STEPS for all tokens, and a query's weights to as many as then have room, which is known when all were seen.
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
constexpr int KEYS_AT_ONCE = 120;              // whose scores and weights stay in the first cache; whole tiles, and even
constexpr int VALUE_STEPS = 4095;

// One sequence: query and out [tokens, heads, dim], key and value [tokens, kv_heads, dim]. Strides are of tokens.
struct Sequence {
  const float *query, *key, *value;
  float* out;
  int64_t query_stride, key_stride, value_stride;
  int64_t tokens, heads, kv_heads, dim;

  int64_t blocks() const { return (tokens + PANEL - 1) / PANEL; }
  int64_t depth() const { return dim + dim % 2; }  // numbers of a key, filled up to pairs
  int64_t token_depth() const { return tokens + tokens % 2; }
  const float* query_of(int64_t token, int64_t head) const { return query + token * query_stride + head * dim; }
  const float* key_of(int64_t token, int64_t head) const { return key + token * key_stride + head * dim; }
  const float* value_of(int64_t token, int64_t head) const { return value + token * value_stride + head * dim; }
};

// A sequence as blocks read it
//   queries: for each block and head [dim, PANEL], or [depth / 2, PANEL, 2], filled up with zeros
//   keys:    for each head [tokens, depth]
//   values:  for each head for each TILE_ROWS dimensions [tokens, TILE_ROWS], or [token_depth / 2, dim, 2]
template <class Number>
struct Packed {
  Number *queries, *keys, *values;
  int64_t query_size, key_size, value_size;  // numbers of a block of queries, and of a head's keys and values

  Packed(const Sequence& of, int64_t depth, int64_t token_depth)
      : queries(scratch<Use::QUERIES, Number>(of.heads * of.blocks() * PANEL * depth)),
        keys(scratch<Use::KEYS, Number>(of.kv_heads * of.tokens * depth)),
        values(scratch<Use::VALUES, Number>(of.kv_heads * token_depth * of.dim)),
        query_size(PANEL * depth),
        key_size(of.tokens * depth),
        value_size(token_depth * of.dim) {}

  const Number* queries_of(const Sequence& of, int64_t head, int64_t block) const {
    return queries + (block * of.heads + head) * query_size;
  }

  // Let put(token, head, out) write each query of a block to its column.
  template <class Put>
  void put_queries(const Sequence& of, int64_t block, const Put& put) const {
    const int64_t first = block * PANEL, stop = std::min<int64_t>(first + PANEL, of.tokens), size = of.heads * query_size;
    Number* columns = queries + block * size;
    if (stop - first < PANEL) std::fill_n(columns, size, Number{});
    for (int64_t token = first; token < stop; token++) {
      for (int64_t head = 0; head < of.heads; head++) put(token, head, columns + head * query_size);
    }
  }
};

// What is known of a block's columns.
struct Columns {
  float tops[PANEL], totals[PANEL] = {};
  Columns() { std::fill_n(tops, PANEL, NO_TOP); }
};

// Call pack(block, first, stop) for all blocks of PANEL tokens.
template <class Pack>
void for_token_blocks(const Sequence& of, const Pack& pack) {
  parallel_for(of.blocks(), [&](int64_t block) {
    pack(block, block * PANEL, std::min<int64_t>((block + 1) * PANEL, of.tokens));
  });
}

// Call block(head, kv_head, block) for all blocks of PANEL queries.
template <class Block>
void for_query_blocks(const Sequence& of, const Block& block) {
  parallel_for(of.heads * of.blocks(), [&](int64_t index) {
    const int64_t head = index / of.blocks();
    block(head, head / (of.heads / of.kv_heads), index % of.blocks());
  });
}

// Call part(key, count) for all keys, KEYS_AT_ONCE at a time.
template <class Part>
INLINE void for_keys(const Sequence& of, const Part& part) {
  for (int64_t key = 0; key < of.tokens; key += KEYS_AT_ONCE) {
    part(key, std::min<int64_t>(KEYS_AT_ONCE, of.tokens - key));
  }
}

// Call tile(first, rows) for all tiles of `size` rows; `rows` is a constant.
template <class Tile>
INLINE void for_tiles_of(int64_t size, const Tile& tile) {
  for (int64_t first = 0; first < size; first += TILE_ROWS) {
    with_constant<TILE_ROWS>(std::min<int64_t>(TILE_ROWS, size - first), [&](auto rows) { tile(first, rows); });
  }
}

// Write a head's columns, times their factors, to the tokens of a block.
void write_block(const Sequence& to, const float* columns, const float* factors, int64_t head, int64_t block) {
  const int64_t first = block * PANEL, count = std::min<int64_t>(PANEL, to.tokens - first);
  float* out = to.out + (first * to.heads + head) * to.dim;
  for (int64_t half = 0; half < count; half += LANES) {
    const int64_t rows = std::min<int64_t>(LANES, count - half);
    const Floats factor = load(factors + half);
    for (int64_t d = 0; d < to.dim; d += LANES) {
      const int64_t size = std::min<int64_t>(LANES, to.dim - d);
      Floats part[LANES];
      UNROLL for (int lane = 0; lane < LANES; lane++) {
        part[lane] = lane < size ? load(columns + (d + lane) * PANEL + half) * factor : Floats{};
      }
      transpose(part);
      if (size == LANES && rows == LANES) {
        UNROLL for (int row = 0; row < LANES; row++) store(out + (half + row) * to.heads * to.dim + d, part[row]);
      } else {
        for (int64_t row = 0; row < rows; row++) {
          memcpy(out + (half + row) * to.heads * to.dim + d, &part[row], size * sizeof(float));
        }
      }
    }
  }
}

// Write pairs of numbers of two rows to out, [size, 2]: pairs_of(first, second, i) of vectors that begin with number i. The
// second row may be missing: zeros.
template <class Number, class PairsOf>
INLINE void interleave_rows(const float* first, const float* second, int64_t size, Number* out, const PairsOf& pairs_of) {
  for (int64_t i = 0; i < size; i += LANES) {
    const int64_t count = std::min<int64_t>(LANES, size - i);
    float one[LANES] = {}, other[LANES] = {};
    if (count < LANES) {
      std::copy_n(first + i, count, one);
      if (second) std::copy_n(second + i, count, other);
    }
    const Floats a = count < LANES ? load(one) : load(first + i);
    const Floats b = count < LANES || !second ? load(other) : load(second + i);
    const Shorts pairs = pairs_of(a, b, i);
    memcpy(out + 2 * i, &pairs, count * 2 * sizeof(Number));
  }
}

// Write a row of `size` numbers to column `column` of out, pairs of [size / 2, PANEL, 2].
template <class Number>
INLINE void write_column_of_pairs(const Number* row, int64_t size, int64_t column, Number* out) {
  for (int64_t i = 0; i < size; i += 2) memcpy(out + i * PANEL + 2 * column, row + i, 2 * sizeof(Number));
}

// float32.

void pack_floats(const Sequence& of, float factor, int64_t block, int64_t first, int64_t stop, const Packed<float>& to) {
  const int64_t dim = of.dim, whole = dim / TILE_ROWS * TILE_ROWS;
  to.put_queries(of, block, [&](int64_t token, int64_t head, float* out) {
    const float* query = of.query_of(token, head);
    for (int64_t d = 0; d < dim; d++) out[d * PANEL + token - first] = query[d] * factor;
  });
  for (int64_t token = first; token < stop; token++) {
    for (int64_t head = 0; head < of.kv_heads; head++) {
      std::copy_n(of.key_of(token, head), dim, to.keys + head * to.key_size + token * dim);
      const float* value = of.value_of(token, head);
      float* values = to.values + head * to.value_size;
      for (int64_t part = 0; part < whole; part += TILE_ROWS) {
        std::copy_n(value + part, TILE_ROWS, values + part * of.tokens + token * TILE_ROWS);
      }
      std::copy_n(value + whole, dim - whole, values + whole * of.tokens + token * (dim - whole));
    }
  }
}

void attend_block(const Sequence& of, const float* queries, const float* keys, const float* values, int64_t head,
                  int64_t block) {
  const int64_t tokens = of.tokens, dim = of.dim;
  float* scores = scratch<Use::SCORES, float>(KEYS_AT_ONCE * PANEL);
  float* sums = scratch<Use::OUTPUTS, float>(dim * PANEL);
  std::fill_n(sums, dim * PANEL, 0.0f);
  Columns columns;
  for_keys(of, [&](int64_t key, int64_t count) {
    for_tiles_of(count, [&](int64_t first, auto rows) {
      float_tile<rows, 1, false>(keys + (key + first) * dim, dim, queries, 0, dim, scores + first * PANEL, PANEL, true);
    });
    raise_tops_of_sums(scores, count, columns.tops, columns.totals, sums, dim);
    column_exp2(scores, count, columns.tops, columns.totals);
    for_tiles_of(dim, [&](int64_t d, auto rows) {
      float_tile<rows, 1, true>(values + d * tokens + key * rows, rows, scores, 0, count, sums + d * PANEL, PANEL, false);
    });
  });
  invert_totals(columns.totals);
  write_block(of, sums, columns.totals, head, block);
}

void attend(const Sequence& of, float scale) {
  const Packed<float> packed(of, of.dim, of.tokens);
  for_token_blocks(of, [&](int64_t block, int64_t first, int64_t stop) {
    pack_floats(of, scale * LOG2_E, block, first, stop, packed);
  });
  for_query_blocks(of, [&](int64_t head, int64_t kv, int64_t block) {
    attend_block(of, packed.queries_of(of, head, block), packed.keys + kv * packed.key_size,
                 packed.values + kv * packed.value_size, head, block);
  });
}

// bfloat16.

void pack_bfloat16(const Sequence& of, float factor, int64_t block, int64_t first, int64_t stop,
                   const Packed<BFloat16>& to) {
  const int64_t dim = of.dim, depth = of.depth();
  float* scaled = scratch<Use::OUTPUTS, float>(dim);
  BFloat16* row = scratch<Use::WEIGHTS, BFloat16>(depth);
  to.put_queries(of, block, [&](int64_t token, int64_t head, BFloat16* out) {
    const float* query = of.query_of(token, head);
    for (int64_t d = 0; d < dim; d++) scaled[d] = query[d] * factor;
    round_row_to_bfloat16(scaled, dim, row, depth);
    write_column_of_pairs(row, depth, token - first, out);
  });
  for (int64_t token = first; token < stop; token += 2) {
    for (int64_t head = 0; head < of.kv_heads; head++) {
      BFloat16* keys = to.keys + head * to.key_size + token * depth;
      const bool has_other = token + 1 < stop;
      round_row_to_bfloat16(of.key_of(token, head), dim, keys, depth);
      if (has_other) round_row_to_bfloat16(of.key_of(token + 1, head), dim, keys + depth, depth);
      interleave_rows(of.value_of(token, head), has_other ? of.value_of(token + 1, head) : nullptr, dim,
                      to.values + head * to.value_size + token * dim,
                      [](Floats a, Floats b, int64_t) INLINE_LAMBDA { return to_bfloat16_pairs(a, b); });
    }
  }
}

void attend_bfloat16_block(const Sequence& of, const BFloat16* queries, const BFloat16* keys, const BFloat16* values,
                           int64_t head, int64_t block) {
  const int64_t dim = of.dim, depth = of.depth();
  float* scores = scratch<Use::SCORES, float>(KEYS_AT_ONCE * PANEL);
  BFloat16* weights = scratch<Use::WEIGHTS, BFloat16>(KEYS_AT_ONCE * PANEL);
  float* sums = scratch<Use::OUTPUTS, float>(dim * PANEL);
  std::fill_n(sums, dim * PANEL, 0.0f);
  Columns columns;
  for_keys(of, [&](int64_t key, int64_t count) {
    for_tiles_of(count, [&](int64_t first, auto rows) {
      bfloat16_tile<rows, 1>(keys + (key + first) * depth, depth, depth, queries, scores + first * PANEL, PANEL, true);
    });
    raise_tops_of_sums(scores, count, columns.tops, columns.totals, sums, dim);
    column_exp2_pairs(scores, count, columns.tops, columns.totals, weights);
    for_tiles_of(dim, [&](int64_t d, auto rows) {
      bfloat16_tile<rows, 1, true>(values + key * dim + 2 * d, dim, count + count % 2, weights, sums + d * PANEL, PANEL,
                                   false);
    });
  });
  invert_totals(columns.totals);
  write_block(of, sums, columns.totals, head, block);
}

void attend_bfloat16(const Sequence& of, float scale) {
  const Packed<BFloat16> packed(of, of.depth(), of.token_depth());
  for_token_blocks(of, [&](int64_t block, int64_t first, int64_t stop) {
    pack_bfloat16(of, scale * LOG2_E, block, first, stop, packed);
  });
  for_query_blocks(of, [&](int64_t head, int64_t kv, int64_t block) {
    attend_bfloat16_block(of, packed.queries_of(of, head, block), packed.keys + kv * packed.key_size,
                          packed.values + kv * packed.value_size, head, block);
  });
}

// int16.

// Of each token's query and key, and of each number of a head's values, the step that it was rounded to multiples of.
struct Steps {
  float* queries;                  // [heads, tokens filled up to blocks]
  float* keys;                     // [kv_heads, tokens]
  float *values, *value_factors;   // [kv_heads, dim filled up to vectors]; a factor is 1 over a step

  float* queries_of(const Sequence& of, int64_t head, int64_t block) const {
    return queries + (head * of.blocks() + block) * PANEL;
  }
};

// The order of positive floats is that of their bits, NaN above all.
INLINE float larger_size(float a, float b) {
  return bits_as<float>(std::max(bits_as<int32_t>(a) & 0x7fffffff, bits_as<int32_t>(b)));
}

void pack_int16(const Sequence& of, float factor, int steps, int64_t block, int64_t first, int64_t stop,
                const Packed<int16_t>& to, const Steps& scales, float* largest_values) {
  const int64_t dim = of.dim, depth = of.depth(), kv_dim = of.kv_heads * dim;
  int16_t* row = scratch<Use::WEIGHTS, int16_t>(depth);
  for (int64_t head = 0; head < of.heads; head++) std::fill_n(scales.queries_of(of, head, block), PANEL, 0.0f);
  to.put_queries(of, block, [&](int64_t token, int64_t head, int16_t* out) {
    const float step = round_row(of.query_of(token, head), dim, row, depth, steps);
    scales.queries_of(of, head, block)[token - first] = step * factor;
    write_column_of_pairs(row, depth, token - first, out);
  });
  std::fill_n(largest_values, kv_dim, 0.0f);
  for (int64_t token = first; token < stop; token++) {
    for (int64_t head = 0; head < of.kv_heads; head++) {
      scales.keys[head * of.tokens + token] =
          round_row(of.key_of(token, head), dim, to.keys + head * to.key_size + token * depth, depth, steps);
    }
    const float* value = of.value_of(token, 0);
    for (int64_t d = 0; d < kv_dim; d++) largest_values[d] = larger_size(value[d], largest_values[d]);
  }
}

// Steps of values from the largest of each block, [blocks, kv_heads * dim].
void find_value_steps(const Sequence& of, const float* largest, int64_t padded_dim, const Steps& scales) {
  for (int64_t head = 0; head < of.kv_heads; head++) {
    for (int64_t d = 0; d < of.dim; d++) {
      float size = 0;
      for (int64_t block = 0; block < of.blocks(); block++) {
        size = larger_size(largest[(block * of.kv_heads + head) * of.dim + d], size);
      }
      scales.values[head * padded_dim + d] = size / VALUE_STEPS;
      scales.value_factors[head * padded_dim + d] = size != 0 ? VALUE_STEPS / size : 0;
    }
  }
}

void attend_int16_block(const Sequence& of, const int16_t* queries, const float* query_steps, const int16_t* keys,
                        const float* key_steps, const int16_t* values, const float* value_steps, int64_t head,
                        int64_t block) {
  const int64_t dim = of.dim, depth = of.depth(), parts = (of.tokens + KEYS_AT_ONCE - 1) / KEYS_AT_ONCE;
  float* scores = scratch<Use::SCORES, float>(of.token_depth() * PANEL);
  float* tops = scratch<Use::PIECE_TOPS, float>(parts * PANEL);  // as they were when a part's weights were computed
  int32_t* sums = scratch<Use::OUTPUTS, int32_t>(dim * PANEL);
  std::fill_n(sums, dim * PANEL, 0);
  Columns columns;
  for_keys(of, [&](int64_t key, int64_t count) {
    float* part = scores + key * PANEL;
    for_tiles_of(count, [&](int64_t first, auto rows) {
      integer_tile<rows, 1>(keys + (key + first) * depth, depth, depth, queries, key_steps + key + first, query_steps,
                            part + first * PANEL, PANEL);
    });
    raise_tops_of_sums(part, count, columns.tops, columns.totals, nullptr, 0);
    column_exp2(part, count, columns.tops, columns.totals);
    std::copy_n(columns.tops, PANEL, tops + key / KEYS_AT_ONCE * PANEL);
  });
  std::fill(scores + of.tokens * PANEL, scores + of.token_depth() * PANEL, 0.0f);
  const float room = (float)(INT32_MAX / VALUE_STEPS - of.tokens);  // each weight may be rounded up
  float most[PANEL], totals[PANEL] = {};
  for (int i = 0; i < PANEL; i++) most[i] = std::min(32767.0f, room / columns.totals[i]);
  int16_t* weights = scratch<Use::WEIGHTS, int16_t>(KEYS_AT_ONCE * PANEL);
  for_keys(of, [&](int64_t key, int64_t count) {
    float factors[PANEL];
    column_factors(tops + key / KEYS_AT_ONCE * PANEL, columns.tops, most, factors);
    round_column_pairs(scores + key * PANEL, count + count % 2, factors, totals, weights);
    for_tiles_of(dim, [&](int64_t d, auto rows) {
      pair_tile<rows, 1, true>(values + key * dim + 2 * d, dim, count + count % 2, weights,
                               [&](int row, int vector, Ints more) INLINE_LAMBDA {
                                 int32_t* to = sums + (d + row) * PANEL + vector * LANES;
                                 more += load_as<Ints>(to);
                                 memcpy(to, &more, sizeof more);
                               });
    });
  });
  invert_totals(totals);
  float* columns_out = scores;
  for (int64_t d = 0; d < dim; d++) {
    for (int i = 0; i < PANEL; i++) columns_out[d * PANEL + i] = (float)sums[d * PANEL + i] * value_steps[d];
  }
  write_block(of, columns_out, totals, head, block);
}

void attend_int16(const Sequence& of, float scale) {
  const int64_t dim = of.dim, kv_dim = of.kv_heads * dim, padded_dim = (dim + LANES - 1) / LANES * LANES;
  const int steps = (int)std::min(32767.0, std::floor(std::sqrt((double)(INT32_MAX / dim))));
  const Packed<int16_t> packed(of, of.depth(), of.token_depth());
  float* of_values = scratch<Use::VALUE_SCALES, float>(2 * of.kv_heads * padded_dim + of.blocks() * kv_dim);
  const Steps scales{scratch<Use::ROW_STEPS, float>(of.heads * of.blocks() * PANEL),
                     scratch<Use::KEY_SCALES, float>(of.kv_heads * of.tokens), of_values,
                     of_values + of.kv_heads * padded_dim};
  float* largest = of_values + 2 * of.kv_heads * padded_dim;
  for_token_blocks(of, [&](int64_t block, int64_t first, int64_t stop) {
    pack_int16(of, scale * LOG2_E, steps, block, first, stop, packed, scales, largest + block * kv_dim);
  });
  find_value_steps(of, largest, padded_dim, scales);
  for_token_blocks(of, [&](int64_t, int64_t first, int64_t stop) {
    for (int64_t token = first; token < stop; token += 2) {
      for (int64_t head = 0; head < of.kv_heads; head++) {
        interleave_rows(of.value_of(token, head), token + 1 < stop ? of.value_of(token + 1, head) : nullptr, dim,
                        packed.values + head * packed.value_size + token * dim,
                        [&](Floats a, Floats b, int64_t d) INLINE_LAMBDA {
                          const Floats factor = load(scales.value_factors + head * padded_dim + d);
                          return round_to_pairs(a * factor, b * factor);
                        });
      }
    }
  });
  for_query_blocks(of, [&](int64_t head, int64_t kv, int64_t block) {
    attend_int16_block(of, packed.queries_of(of, head, block), scales.queries_of(of, head, block),
                       packed.keys + kv * packed.key_size, scales.keys + kv * of.tokens,
                       packed.values + kv * packed.value_size, scales.values + kv * padded_dim, head, block);
  });
}

}  // namespace
}  // namespace transept

// The same fields as transept::Sequence.
EXPORT void transept_attend_sequence(const transept::Sequence* sequence, float scale) {
  transept::attend(*sequence, scale);
}

EXPORT void transept_attend_sequence_in_int16(const transept::Sequence* sequence, float scale) {
  transept::attend_int16(*sequence, scale);
}

EXPORT void transept_attend_sequence_in_bfloat16(const transept::Sequence* sequence, float scale) {
  transept::attend_bfloat16(*sequence, scale);
}
