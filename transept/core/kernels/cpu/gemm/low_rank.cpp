// Low-rank updates of products. A tile of rows of one adapter is multiplied by A, then by B. Each number is summed in the same
// order for any number of rows in the tile.
#include "low_rank.h"

#include <algorithm>

#include "../export.h"
#include "../isa.h"
#include "../parallel.h"

namespace transept {
namespace {

constexpr int64_t RANKS = 64;  // rows of A whose products with a tile are kept at a time
constexpr int RANKS_AT_ONCE = 2;

// hidden = x @ a.T. x: rows of `inputs` numbers, a: [count, inputs], hidden: [ROWS, RANKS].
template <int ROWS, int COUNT>
INLINE void shrink(const float* const (&x)[ROWS], int64_t inputs, const float* a, float* hidden) {
  Floats sums[ROWS][COUNT] = {};
  int64_t i = 0;
  for (; i + LANES <= inputs; i += LANES) {
    UNROLL for (int rank = 0; rank < COUNT; rank++) {
      const Floats factors = load(a + rank * inputs + i);
      UNROLL for (int row = 0; row < ROWS; row++) sums[row][rank] += load(x[row] + i) * factors;
    }
  }
  if (i < inputs) {  // the rest, padded with zeros
    float padded[2][LANES];
    UNROLL for (int row = 0; row < ROWS; row++) {
      UNROLL for (int rank = 0; rank < COUNT; rank++) {
        for (int lane = 0; lane < LANES; lane++) {
          const bool within = i + lane < inputs;
          padded[0][lane] = within ? x[row][i + lane] : 0;
          padded[1][lane] = within ? a[rank * inputs + i + lane] : 0;
        }
        sums[row][rank] += load(padded[0]) * load(padded[1]);
      }
    }
  }
  UNROLL for (int row = 0; row < ROWS; row++) {
    UNROLL for (int rank = 0; rank < COUNT; rank++) hidden[row * RANKS + rank] = sum(sums[row][rank]);
  }
}

// out += hidden @ b, for `size` outputs of COUNT vectors, or less if padded. b: rows of `outputs` numbers.
template <int ROWS, int COUNT>
INLINE void expand(const float* hidden, int64_t ranks, const float* b, int64_t outputs, float* const (&out)[ROWS],
                   int64_t at) {
  Floats sums[ROWS][COUNT] = {};
  for (int64_t rank = 0; rank < ranks; rank++) {
    UNROLL for (int vector = 0; vector < COUNT; vector++) {
      const Floats factors = load(b + rank * outputs + at + vector * LANES);
      UNROLL for (int row = 0; row < ROWS; row++) sums[row][vector] += broadcast(hidden[row * RANKS + rank]) * factors;
    }
  }
  UNROLL for (int row = 0; row < ROWS; row++) {
    UNROLL for (int vector = 0; vector < COUNT; vector++) {
      float* to = out[row] + at + vector * LANES;
      store(to, load(to) + sums[row][vector]);
    }
  }
}

template <int ROWS>
void expand_rest(const float* hidden, int64_t ranks, const float* b, int64_t outputs, float* const (&out)[ROWS], int64_t at) {
  const int64_t size = outputs - at;
  Floats sums[ROWS] = {};
  for (int64_t rank = 0; rank < ranks; rank++) {
    float padded[LANES] = {};
    std::copy(b + rank * outputs + at, b + rank * outputs + outputs, padded);
    UNROLL for (int row = 0; row < ROWS; row++) sums[row] += broadcast(hidden[row * RANKS + rank]) * load(padded);
  }
  for (int row = 0; row < ROWS; row++) {
    float padded[LANES] = {};
    std::copy(out[row] + at, out[row] + at + size, padded);
    store(padded, load(padded) + sums[row]);
    std::copy(padded, padded + size, out[row] + at);
  }
}

// Add a piece's update of ROWS rows. first: of the outputs that out has.
template <int ROWS>
void add_piece(const LowRankPiece& piece, const RowTile& tile, const float* x, int64_t inputs, int64_t first,
               int64_t width, float* out) {
  const float* from[ROWS];
  float* to[ROWS];
  for (int row = 0; row < ROWS; row++) {
    from[row] = x + tile.rows[row] * inputs;
    to[row] = out + tile.rows[row] * width + piece.first - first;
  }
  float hidden[ROWS * RANKS];
  for (int64_t begin = 0; begin < piece.rank; begin += RANKS) {
    const int64_t ranks = std::min(RANKS, piece.rank - begin);
    const float *a = piece.a + begin * inputs, *b = piece.b + begin * piece.outputs;
    int64_t rank = 0;
    for (; rank + RANKS_AT_ONCE <= ranks; rank += RANKS_AT_ONCE) {
      shrink<ROWS, RANKS_AT_ONCE>(from, inputs, a + rank * inputs, hidden + rank);
    }
    for (; rank < ranks; rank++) shrink<ROWS, 1>(from, inputs, a + rank * inputs, hidden + rank);
    int64_t at = 0;
    for (; at + 2 * LANES <= piece.outputs; at += 2 * LANES) expand<ROWS, 2>(hidden, ranks, b, piece.outputs, to, at);
    for (; at + LANES <= piece.outputs; at += LANES) expand<ROWS, 1>(hidden, ranks, b, piece.outputs, to, at);
    if (at < piece.outputs) expand_rest<ROWS>(hidden, ranks, b, piece.outputs, to, at);
  }
}

}  // namespace

bool updates_any(const LowRankSlot* slots, const AdapterRows& rows) {
  for (int64_t tile = 0; slots && tile < rows.count; tile++) {
    if (slots[rows.tiles[tile].slot].count) return true;
  }
  return false;
}

void add_low_rank(const float* x, int64_t inputs, const LowRankSlot* slots, const AdapterRows& rows, int64_t first,
                  int64_t outputs, float* out) {
  if (!updates_any(slots, rows)) return;
  parallel_for(rows.count, [&](int64_t number) {
    const RowTile& tile = rows.tiles[number];
    const LowRankSlot& slot = slots[tile.slot];
    for (int64_t i = 0; i < slot.count; i++) {
      const LowRankPiece& piece = slot.pieces[i];
      if (piece.first < first || piece.first + piece.outputs > first + outputs) continue;
      switch (tile.count) {
        case 1: add_piece<1>(piece, tile, x, inputs, first, outputs, out); break;
        case 2: add_piece<2>(piece, tile, x, inputs, first, outputs, out); break;
        case 3: add_piece<3>(piece, tile, x, inputs, first, outputs, out); break;
        default: add_piece<4>(piece, tile, x, inputs, first, outputs, out);
      }
    }
  });
}

}  // namespace transept

EXPORT int64_t transept_add_low_rank(const float* x, int64_t inputs, const transept::LowRankSlot* slots,
                                     const transept::AdapterRows* rows, int64_t first, int64_t outputs, float* out) {
  using namespace transept;
  return run_kernel([&] { add_low_rank(x, inputs, slots, *rows, first, outputs, out); });
}
