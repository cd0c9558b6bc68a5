// Attention of few queries over keys and values in a paged cache, read once and in the order in which they lie.
#pragma once

#include <cstdint>

#include "kv_cache.h"

namespace transept {

// A part of a sequence's keys, of which a softmax is computed by itself.
struct Piece {
  int64_t table;      // where the sequence's block table begins in PagedWork::blocks
  int64_t first_key;  // and last + 1
  int64_t stop_key;
  int64_t first_row;  // of the sequence's queries, and last + 1
  int64_t stop_row;
  int64_t length;  // keys of the sequence
};

struct RowPieces {
  int64_t row;
  int64_t first_piece;  // and last + 1
  int64_t stop_piece;
};

// Which keys which queries look at. The same fields in paged_attention.py.
struct PagedWork {
  int64_t block_size;
  const int64_t* blocks;
  const Piece* pieces;
  int64_t num_pieces;
  const RowPieces* rows;
  int64_t num_rows;
  int64_t most_queries;  // of a sequence
};

// What is added to a score: [heads, distances], the last column for a sequence's last key. values is null for none.
struct DistanceBias {
  const float* values;
  int64_t distances;
};

// Write the work's rows of attention's output. query, out: [rows, heads, dim].
void attend_paged(const float* query, int64_t heads, const KVCache& cache, const PagedWork& work, float scale,
                  const DistanceBias& bias, float* out);

}  // namespace transept
