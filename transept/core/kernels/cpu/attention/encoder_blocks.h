// The parts that encoder self-attention shares for all kinds of numbers.
//
// Queries, keys and values are packed once, token by token for all heads, because the row of a token is contiguous. Queries
// are columns, in blocks of PANEL, so that the softmax computes as many at a time as a vector has numbers. A block visits
// KEYS_AT_ONCE keys at a time, whose scores and weights stay in the first cache. A higher score than before rescales the sums
// (online softmax, Milakov and Gimelshein 2018).
#pragma once

#include <algorithm>

#include "../gemm/pair_tile.h"
#include "../parallel.h"
#include "../scratch.h"
#include "column_softmax.h"

namespace transept {

constexpr float LOG2_E = 1.4426950408889634f;  // scores are multiplied by it, because weights are powers of 2, not of e
constexpr int KEYS_AT_ONCE = 120;              // even, and whole tiles

// One sequence: query and out [tokens, heads, dim], key and value [tokens, kv_heads, dim]. Strides are those of tokens. bias:
// added to scores, null for none, [heads, 2 * tokens - 1], with rows bias_stride numbers apart. The middle column is for a
// query's own token, the columns after it for keys 1, 2, ... tokens before the query. position_keys: null for none, keys of
// distances, [heads or 1, 2 * tokens - 1, dim]; row tokens - 1 + d is for a key d tokens after its query. content_bias and
// position_bias, [heads, dim], null for none: added to queries before they meet keys and position_keys. seen_before, seen_after:
// distances of keys before and after a query beyond which the bias is -inf, so that they may be left out.
struct Sequence {
  const float *query, *key, *value;
  float* out;
  const float *bias, *position_keys, *content_bias, *position_bias;
  int64_t query_stride, key_stride, value_stride, bias_stride, position_stride;
  int64_t tokens, heads, kv_heads, dim, seen_before, seen_after;

  int64_t blocks() const { return (tokens + PANEL - 1) / PANEL; }
  int64_t depth() const { return dim + dim % 2; }  // numbers of a key, padded to pairs
  int64_t token_depth() const { return tokens + tokens % 2; }
  const float* query_of(int64_t token, int64_t head) const { return query + token * query_stride + head * dim; }
  const float* key_of(int64_t token, int64_t head) const { return key + token * key_stride + head * dim; }
  const float* value_of(int64_t token, int64_t head) const { return value + token * value_stride + head * dim; }
};

// A sequence in the order in which blocks read it
//   queries: [blocks, heads, dim, PANEL], or [blocks, heads, depth / 2, PANEL, 2], padded with zeros
//   keys:    [kv_heads, tokens, depth]
//   values:  [kv_heads, dim / TILE_ROWS, tokens, TILE_ROWS], or [kv_heads, token_depth / 2, dim, 2]
template <class Number, class Key = Number, class Query = Number>
struct Packed {
  Query* queries;
  Key* keys;
  Number* values;
  int64_t query_size, key_size, value_size;  // numbers of a block of queries, of a head's keys and of its values

  Packed(const Sequence& of, int64_t depth, int64_t token_depth)
      : queries(scratch<Use::QUERIES, Query>(of.heads * of.blocks() * PANEL * depth)),
        keys(scratch<Use::KEYS, Key>(of.kv_heads * of.tokens * depth)),
        values(scratch<Use::VALUES, Number>(of.kv_heads * token_depth * of.dim)),
        query_size(PANEL * depth),
        key_size(of.tokens * depth),
        value_size(token_depth * of.dim) {}

  const Query* queries_of(const Sequence& of, int64_t head, int64_t block) const {
    return queries + (block * of.heads + head) * query_size;
  }

  // Call put(token, head, out) for each query of a block; it writes the query to its column of out. all: as `queries`.
  template <class Put>
  void put_queries(const Sequence& of, int64_t block, Query* all, const Put& put) const {
    const int64_t first = block * PANEL, stop = std::min<int64_t>(first + PANEL, of.tokens), size = of.heads * query_size;
    Query* columns = all + block * size;
    if (stop - first < PANEL) std::fill_n(columns, size, Query{});
    for (int64_t token = first; token < stop; token++) {
      for (int64_t head = 0; head < of.heads; head++) put(token, head, columns + head * query_size);
    }
  }
};

// A sequence's biases, times LOG2_E like scores, padded to whole blocks.
class Biases {
 public:
  explicit Biases(const Sequence& of) : middle_(of.tokens - 1), size_(2 * of.tokens - 1 + PANEL) {
    if (!of.bias) return;
    numbers_ = scratch<Use::BIASES, float>(of.heads * size_);
    for (int64_t head = 0; head < of.heads; head++) {
      float* to = numbers_ + head * size_;
      for (int64_t i = 0; i < size_ - PANEL; i++) to[i] = of.bias[head * of.bias_stride + i] * LOG2_E;
      std::fill_n(to + size_ - PANEL, PANEL, 0.0f);
    }
  }

  // Add the biases to the scores of `count` keys, from `key` on, by a block of queries, [count, PANEL].
  INLINE void add(int64_t head, int64_t block, int64_t key, int64_t count, float* scores) const {
    if (!numbers_) return;
    const float* of_row = numbers_ + head * size_ + middle_ + block * PANEL - key;
    for (int64_t row = 0; row < count; row++, of_row--) {
      UNROLL for (int lane = 0; lane < PANEL; lane += LANES) {
        float* place = scores + row * PANEL + lane;
        store(place, load(place) + load(of_row + lane));
      }
    }
  }

 private:
  float* numbers_ = nullptr;
  int64_t middle_, size_;
};

// The highest score so far of each column of a block, and the sum of its weights.
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

// Call part(key, count) for all keys that a block of queries may see, up to KEYS_AT_ONCE at a time.
template <class Part>
INLINE void for_keys(const Sequence& of, int64_t block, const Part& part) {
  const int64_t first = std::max<int64_t>(0, block * PANEL - of.seen_before) / KEYS_AT_ONCE * KEYS_AT_ONCE;
  const int64_t stop = std::min<int64_t>(of.tokens, (block + 1) * PANEL + of.seen_after);
  for (int64_t key = first; key < stop; key += KEYS_AT_ONCE) {
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

// Write a head's columns, [dim, PANEL], times their factors, [PANEL], to the tokens of a block.
inline void write_block(const Sequence& to, const float* columns, const float* factors, int64_t head, int64_t block) {
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

// Write pairs of numbers of two rows to out, [size, 2]. pairs_of(first, second, i) makes them of vectors from number i on. A
// missing second row counts as zeros.
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

// Write a row of `size` numbers to column `column` of out, [size / 2, PANEL, 2].
template <class Number>
INLINE void write_column_of_pairs(const Number* row, int64_t size, int64_t column, Number* out) {
  for (int64_t i = 0; i < size; i += 2) memcpy(out + i * PANEL + 2 * column, row + i, 2 * sizeof(Number));
}

}  // namespace transept
