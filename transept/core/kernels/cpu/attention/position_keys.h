// Scores by the distance from a query to a key: (query + position_bias) · (key of the distance), see Sequence.
//
// A block of queries and a run of keys have few distances. Their scores are one product, in which each query's column is
// shifted by one row against the column before it.
#pragma once

#include "encoder_blocks.h"

namespace transept {

// Query, Row: numbers of the packed queries, in the layout of Packed, and of the rows of distances, [heads or 1, 2 * tokens -
// 1, depth].
template <class Query, class Row = Query>
struct PositionKeys {
  Query* queries = nullptr;
  const Row* rows = nullptr;
  int64_t query_size = 0, head_size = 0, depth = 0;

  PositionKeys(const Sequence& of, int64_t depth) : query_size(PANEL * depth), depth(depth) {
    if (of.position_keys) queries = scratch<Use::POSITION_QUERIES, Query>(of.heads * of.blocks() * query_size);
  }

  explicit operator bool() const { return queries; }

  Query* column_of(const Sequence& of, int64_t block, int64_t head) const {
    return queries + (block * of.heads + head) * query_size;
  }

  // Add to the scores of `count` keys, from `key` on, by a block of queries, [count, PANEL]. tile(first, rows, queries, out)
  // multiplies `rows` rows, a constant, from `first` on.
  template <class Tile>
  INLINE void add(const Sequence& of, int64_t head, int64_t block, int64_t key, int64_t count, float* scores,
                  const Tile& tile) const {
    if (!queries) return;
    float* products = scratch<Use::POSITION_SCORES, float>((KEYS_AT_ONCE + PANEL) * PANEL);
    // Row i of the products belongs to row `first + i` of the table. Rows outside of it belong to columns of padding.
    const int64_t first = key - block * PANEL - (PANEL - 1) + of.tokens - 1, all = count + PANEL - 1;
    const int64_t begin = std::max<int64_t>(0, -first), end = std::min(all, 2 * of.tokens - 1 - first);
    std::fill_n(products, begin * PANEL, 0.0f);
    std::fill_n(products + end * PANEL, (all - end) * PANEL, 0.0f);
    const Row* table = rows + head * head_size + (first + begin) * depth;
    for_tiles_of(end - begin, [&](int64_t row, auto size) {
      tile(size, table + row * depth, column_of(of, block, head), products + (begin + row) * PANEL);
    });
    for (int64_t row = 0; row < count; row++) {
      const float* last = products + (row + PANEL - 1) * PANEL;  // of the first column
      for (int64_t column = 0; column < PANEL; column++) scores[row * PANEL + column] += last[-column * (PANEL - 1)];
    }
  }
};

}  // namespace transept
