// Low-rank updates of products: out += B A x with the factors of each row's adapter (LoRA).
#pragma once

#include <cstdint>

namespace transept {

// An update of some outputs of a linear layer. All structs here have the same fields as in low_rank.py.
struct LowRankPiece {
  const float* a;  // [rank, in]
  const float* b;  // [rank, outputs], scaled
  int64_t rank;
  int64_t first;    // of the layer's outputs
  int64_t outputs;  // number of them
};

// The updates of one adapter.
struct LowRankSlot {
  const LowRankPiece* pieces;
  int64_t count;
};

constexpr int ROWS_OF_TILE = 4;

// Rows of one adapter.
struct RowTile {
  int32_t slot;
  int32_t count;
  int32_t rows[ROWS_OF_TILE];
};

// A step's rows with an adapter.
struct AdapterRows {
  const RowTile* tiles;
  int64_t count;
};

// Return true if an adapter of these rows updates a layer. slots: the layer's adapters by slot, null for none.
bool updates_any(const LowRankSlot* slots, const AdapterRows& rows);

// Add the updates of some of a layer's outputs, those from `first` on. x: [rows, in], out: [rows, outputs]. Each row is
// batch-invariant, bit for bit. Does nothing if slots is null.
void add_low_rank(const float* x, int64_t inputs, const LowRankSlot* slots, const AdapterRows& rows, int64_t first,
                  int64_t outputs, float* out);

}  // namespace transept
