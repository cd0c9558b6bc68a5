// Products of rows and panels by AMX, both in the order of tiles. A block is 32 rows by a panel of 32 outputs; its sums are
// four tiles. While the tiles of a block are multiplied, the vector units finish the sums of the block before.
#pragma once

#include <algorithm>
#include <type_traits>

#include "../parallel.h"
#include "../scratch.h"
#include "amx_tiles.h"
#include "float_tile.h"
#include "quad_tile.h"
#include "rounding.h"
#include "weight.h"

namespace transept {

#if defined(TRANSEPT_EMULATE_AMX) || defined(__AMX_TILE__)

constexpr int BLOCK = 2 * TILE_SIDE;     // rows and outputs whose sums are in tiles 0 to 3
constexpr int ROW_BYTES = 64;            // bytes of a tile's row
constexpr int DEPTH = ROW_BYTES / 2;     // bfloat16 of a tile's row
constexpr int BYTES_DEEP = ROW_BYTES;    // int8 of a tile's row
constexpr int TILE = TILE_SIDE * DEPTH;  // bfloat16 of a tile
constexpr int STEPS_OF_PASS = 8;         // tiles of a panel that stay in the first cache for all blocks
static_assert(LANES == TILE_SIDE && PANEL == BLOCK, "a block is one panel wide");

// Tiles 4 and 5 hold rows of a, 6 and 7 outputs of b, and 0 to 3 their four sums.
#define LOAD_A(from, distance)          \
  TILE_LOAD(4, (from), ROW_BYTES);      \
  TILE_LOAD(5, (from) + (distance), ROW_BYTES)
#define ZERO_SUMS() \
  TILE_ZERO(0);     \
  TILE_ZERO(1);     \
  TILE_ZERO(2);     \
  TILE_ZERO(3)
#define FOR_SUMS(INSTRUCTION, at, stride)                               \
  INSTRUCTION(0, (at), (stride) * 4);                                   \
  INSTRUCTION(1, (at) + TILE_SIDE, (stride) * 4);                       \
  INSTRUCTION(2, (at) + TILE_SIDE * (stride), (stride) * 4);            \
  INSTRUCTION(3, (at) + TILE_SIDE * (stride) + TILE_SIDE, (stride) * 4)
#define STORE_SUMS(to, stride) FOR_SUMS(TILE_STORE, to, stride)
#define STORE_FEW_SUMS(to, stride)    \
  TILE_STORE(0, (to), (stride) * 4); \
  TILE_STORE(1, (to) + TILE_SIDE, (stride) * 4)
#define ADD_PRODUCTS(INSTRUCTION) \
  INSTRUCTION(0, 4, 6);           \
  INSTRUCTION(1, 4, 7);           \
  INSTRUCTION(2, 5, 6);           \
  INSTRUCTION(3, 5, 7)

// Rows in the order of tiles, [rows / 16, steps, 16, ROW_BYTES].
struct TiledRows {
  char* tiles;
  int64_t steps;

  static int64_t bytes(int64_t rows, int64_t steps) { return (rows + BLOCK - 1) / BLOCK * BLOCK * steps * ROW_BYTES; }
  char* of(int64_t row) const { return tiles + (row / TILE_SIDE * steps * TILE_SIDE + row % TILE_SIDE) * ROW_BYTES; }

  // Write a row of steps * ROW_BYTES bytes to its place in the tiles.
  INLINE void put(int64_t row, const void* numbers) const {
    char* to = of(row);
    for (int64_t step = 0; step < steps; step++) {
      memcpy(to + step * TILE_BYTES, (const char*)numbers + step * ROW_BYTES, ROW_BYTES);
    }
  }
};

// The numbers of rows and of panels: bfloat16, or bytes with or without a sign. Halves are those of numbers of 16 bits: the
// first 16 rows of a block are the upper halves, signed, the other 16 the lower halves, unsigned.
enum class Numbers { BFLOAT16, SIGNED_BY_UNSIGNED, HALVES_BY_SIGNED };
template <Numbers NUMBERS>
using SumOf = std::conditional_t<NUMBERS == Numbers::BFLOAT16, float, int32_t>;

// Rows that are rounded to bfloat16 or int8 as they become tiles. A row in int8 has a step, and an offset to be subtracted
// from its sums.
template <Numbers NUMBERS>
struct RoundedRows {
  static_assert(NUMBERS == Numbers::BFLOAT16 || NUMBERS == Numbers::SIGNED_BY_UNSIGNED);
  static constexpr bool OF_BYTES = NUMBERS != Numbers::BFLOAT16;
  static constexpr int DEEP = OF_BYTES ? BYTES_DEEP : DEPTH;  // numbers of a tile's row
  using Sum = SumOf<NUMBERS>;

  TiledRows tiled;
  int32_t* offsets;
  float* row_scales;

  // USE, OFFSETS, STEPS: the scratch buffers of the three arrays.
  template <Use USE, Use OFFSETS, Use STEPS>
  static RoundedRows make(int64_t rows, int64_t depth) {
    return {{scratch<USE, char>(TiledRows::bytes(rows, depth / DEEP)), depth / DEEP},
            OF_BYTES ? scratch<OFFSETS, int32_t>(rows) : nullptr,
            OF_BYTES ? scratch<STEPS, float>(rows) : nullptr};
  }

  void put(int64_t row, const float* numbers, int64_t size) const {
    const int64_t depth = tiled.steps * DEEP;
    if constexpr (OF_BYTES) {
      RowOfQuads* rounded = scratch<Use::WEIGHTS, RowOfQuads>(depth);
      row_scales[row] = round_row_to_quads(numbers, size, rounded, depth, offsets[row]);
      tiled.put(row, rounded);
    } else {
      BFloat16* rounded = scratch<Use::WEIGHTS, BFloat16>(depth);
      round_row_to_bfloat16(numbers, size, rounded, depth);
      tiled.put(row, rounded);
    }
  }

  // Turn the sums of rows `first` to `stop` - 1 of a block, [BLOCK, BLOCK], into products, in place. row, panel: where the
  // block begins.
  INLINE float* products(Sum* sums, int64_t first, int64_t stop, int64_t row, int64_t panel, const Weight& weight) const {
    float* numbers = reinterpret_cast<float*>(sums);
    if constexpr (OF_BYTES) {
      for (int64_t r = first; r < stop; r++) {
        const Floats row_scale = broadcast(row_scales[row + r]);
        UNROLL for (int lane = 0; lane < BLOCK; lane += LANES) {
          const Floats total = to_floats(load_as<Ints>(sums + r * BLOCK + lane) - broadcast(offsets[row + r]));
          store(numbers + r * BLOCK + lane, total * row_scale * load(weight.scales + panel * PANEL + lane));
        }
      }
    }
    return numbers;
  }
};

// A block whose sums are complete but not yet written. finish(sums, row, panel, first, stop) finishes its rows `first` to
// `stop` - 1.
template <class Sum, class Finish>
struct UnfinishedBlock {
  const Finish& finish;
  Sum* sums = nullptr;
  int64_t row = 0, panel = 0, next = 0, rows = 0;

  INLINE void continue_with(int64_t count) {
    if (next >= rows) return;
    const int64_t stop = std::min(next + count, rows);
    finish(sums, row, panel, next, stop);
    next = stop;
  }
};

// Multiply the tiles that are loaded. few: only those of the first 16 rows.
template <Numbers NUMBERS>
INLINE void add_products(bool few) {
  if (few && NUMBERS == Numbers::BFLOAT16) {
    TILE_ADD_BFLOAT16(0, 4, 6);
    TILE_ADD_BFLOAT16(1, 4, 7);
    return;
  }
  if constexpr (NUMBERS == Numbers::BFLOAT16) {
    ADD_PRODUCTS(TILE_ADD_BFLOAT16);
  } else if constexpr (NUMBERS == Numbers::SIGNED_BY_UNSIGNED) {
    ADD_PRODUCTS(TILE_ADD_SIGNED_BY_UNSIGNED);
  } else {
    TILE_ADD_SIGNED_BY_SIGNED(0, 4, 6);
    TILE_ADD_SIGNED_BY_SIGNED(1, 4, 7);
    TILE_ADD_UNSIGNED_BY_SIGNED(2, 5, 6);
    TILE_ADD_UNSIGNED_BY_SIGNED(3, 5, 7);
  }
}

// Panels that are packed in the order of tiles, two for each of `steps` steps.
struct TiledPanels {
  const char* tiles;
  int64_t steps;

  TiledPanels(const void* tiles, int64_t steps) : tiles(static_cast<const char*>(tiles)), steps(steps) {}

  INLINE const char* of(int64_t panel) const { return tiles + panel * steps * 2 * TILE_BYTES; }
  INLINE void meanwhile(int64_t panel, int64_t step) const {
    prefetch<2 * TILE_BYTES, PREFETCH_WEIGHTS>(of(panel) + step * 2 * TILE_BYTES);
  }
};

// Multiply some blocks of rows by some panels. panels.of(panel) returns the tiles of a panel; panels.meanwhile(panel, step)
// is called while the first block is multiplied by them.
template <Numbers NUMBERS, class Panels, class Finish>
void multiply_blocks(const TiledRows& a, const Panels& panels, int64_t first_row, int64_t stop_row, int64_t first_panel,
                     int64_t stop_panel, const Finish& finish) {
  using Sum = SumOf<NUMBERS>;
  const int64_t steps = a.steps, blocks = (stop_row - first_row + BLOCK - 1) / BLOCK;
  const int64_t steps_of_pass = blocks == 1 ? steps : STEPS_OF_PASS;
  const bool in_one_pass = steps <= steps_of_pass;
  // Few rows use tiles of as few rows, so that multiplying takes no longer than reading a panel.
  const bool few = NUMBERS == Numbers::BFLOAT16 && stop_row - first_row <= TILE_SIDE;
  Sum* sums = scratch<Use::BLOCK_SUMS, Sum>((in_one_pass ? 2 : blocks) * BLOCK * BLOCK);
  UnfinishedBlock<Sum, Finish> before{finish};
  int64_t turn = 0;
  TILES_BEGIN(few ? stop_row - first_row : TILE_SIDE);
  for (int64_t panel = first_panel; panel < stop_panel; panel++) {
    for (int64_t first = 0; first < steps; first += steps_of_pass) {
      const int64_t count = std::min(steps_of_pass, steps - first), rows_of_step = (BLOCK + count - 1) / count;
      for (int64_t block = 0; block < blocks; block++) {
        const int64_t row = first_row + block * BLOCK;
        const char* rows = a.of(row) + first * TILE_BYTES;
        const char* outputs = panels.of(panel) + first * 2 * TILE_BYTES;
        Sum* to = sums + (in_one_pass ? turn++ % 2 : block) * BLOCK * BLOCK;
        if (first == 0) {
          ZERO_SUMS();
        } else {
          FOR_SUMS(TILE_LOAD, to, BLOCK);
        }
        for (int64_t step = 0; step < count; step++, rows += TILE_BYTES, outputs += 2 * TILE_BYTES) {
          TILE_LOAD(6, outputs, 2 * ROW_BYTES);
          TILE_LOAD(7, outputs + ROW_BYTES, 2 * ROW_BYTES);
          TILE_LOAD(4, rows, ROW_BYTES);
          if (!few) TILE_LOAD(5, rows + steps * TILE_BYTES, ROW_BYTES);
          add_products<NUMBERS>(few);
          if (block == 0) panels.meanwhile(panel, first + step);
          before.continue_with(rows_of_step);
        }
        before.continue_with(BLOCK);
        if (few) {
          STORE_FEW_SUMS(to, BLOCK);
        } else {
          STORE_SUMS(to, BLOCK);
        }
        if (first + count == steps) {
          before.sums = to, before.row = row, before.panel = panel, before.next = 0;
          before.rows = std::min<int64_t>(BLOCK, stop_row - row);
        }
      }
    }
  }
  before.continue_with(BLOCK);
  TILES_END();
}

// Call piece(first_row, stop_row, first_panel, stop_panel) for all pieces of up to ROWS rows and PANELS panels.
template <int ROWS, int PANELS, class Piece>
void for_amx_pieces(int64_t rows, int64_t num_outputs, const Piece& piece) {
  const int64_t panels = (num_outputs + PANEL - 1) / PANEL;
  const int64_t groups = (panels + PANELS - 1) / PANELS, parts = (rows + ROWS - 1) / ROWS;
  parallel_for(parts * groups, [&](int64_t index) {
    const int64_t row = index / groups * ROWS, panel = index % groups * PANELS;
    piece(row, std::min(row + ROWS, rows), panel, std::min(panel + PANELS, panels));
  });
}

// Apply an epilogue to rows `first` to `stop` - 1 of a block, [BLOCK, BLOCK], whose columns are a panel's outputs.
INLINE void apply_to_block(float* block, int64_t first, int64_t stop, int64_t panel, int64_t num_outputs,
                           const Epilogue& epilogue) {
  const int64_t column = panel * PANEL, columns = std::min<int64_t>(PANEL, num_outputs - column);
  float* part = block + first * BLOCK;
  const float* bias = epilogue.bias ? epilogue.bias + column : nullptr;
  if (epilogue.activates) {
    activate_part(part, stop - first, BLOCK, 0, columns, bias, epilogue.activation);
  } else if (bias) {
    for (int64_t r = 0; r < stop - first; r++) {
      for (int64_t c = 0; c < columns; c++) part[r * BLOCK + c] += bias[c];
    }
  }
}

// Write rows `first` to `stop` - 1 of a block to out, [.., num_outputs], or if ADDS add them to it. row, panel: where the
// block begins.
template <bool ADDS = false>
INLINE void write_rows(const float* block, int64_t first, int64_t stop, int64_t row, int64_t panel, int64_t num_outputs,
                       float* out) {
  const int64_t column = panel * PANEL, columns = std::min<int64_t>(PANEL, num_outputs - column);
  for (int64_t r = first; r < stop; r++) {
    float* to = out + (row + r) * num_outputs + column;
    const float* from = block + r * BLOCK;
    if (!ADDS) prefetch<BLOCK * sizeof(float), 0>(to + BLOCK * num_outputs);  // the next block's place, far from this one
    if (columns == BLOCK) {
      UNROLL for (int lane = 0; lane < BLOCK; lane += LANES) {
        store(to + lane, ADDS ? load(to + lane) + load(from + lane) : load(from + lane));
      }
    } else {
      for (int64_t c = 0; c < columns; c++) to[c] = ADDS ? to[c] + from[c] : from[c];
    }
  }
}

#endif

}  // namespace transept
