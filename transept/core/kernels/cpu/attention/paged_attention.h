// Attention of few queries over a paged cache, whose keys and values are read once, in the order of memory.
#pragma once

#include <cstdint>

#include "kv_cache.h"

namespace transept {

// A part of a sequence's keys, with a softmax of its own.
struct Piece {
  int64_t table;      // index in PagedWork::blocks at which the sequence's block table begins
  int64_t first_key;
  int64_t stop_key;   // the last key + 1
  int64_t first_row;  // of the sequence's queries
  int64_t stop_row;
  int64_t length;     // keys of the sequence
};

// The pieces of a row's sequence, `first_piece` to `stop_piece` - 1.
struct RowPieces {
  int64_t row;
  int64_t first_piece;
  int64_t stop_piece;
};

// The keys that each query attends to. The same fields as in paged_attention.py.
struct PagedWork {
  int64_t block_size;
  const int64_t* blocks;
  const Piece* pieces;
  int64_t num_pieces;
  const RowPieces* rows;
  int64_t num_rows;
  int64_t most_queries;  // the largest number of queries of a sequence
};

// Added to scores: [heads, distances], the last column for a sequence's last key. values is null for none.
struct DistanceBias {
  const float* values;
  int64_t distances;
};

// Write the attention of the rows of `work` to out. query, out: [rows, heads, dim].
void attend_paged(const float* query, int64_t heads, const KVCache& cache, const PagedWork& work, float scale,
                  const DistanceBias& bias, float* out);

}  // namespace transept
