// Products by AMX. Its numbers have 8 bits of precision, as bfloat16 or as int8, and more are made of several: a float32
// is the sum of three bfloat16 and a float16 of two, each of which has the next 8 bits; their product is that of each with
// each, but for the last with the last, too small to count. A number of 16 bits is two of 8, the upper signed, the lower not.
#include "amx.h"

#include <algorithm>
#include <cstdlib>

#include "../parallel.h"
#include "../scratch.h"
#include "amx_tiles.h"

namespace transept {

#if defined(TRANSEPT_EMULATE_AMX) || defined(__AMX_TILE__)
static_assert(LANES == TILE_SIDE && PANEL == AMX_ROWS && PANEL == 2 * TILE_SIDE, "a block is one panel wide");
namespace {

constexpr int BLOCK = AMX_ROWS;                   // rows and outputs whose sums are in tiles 0 to 3
constexpr int DEPTH = 32;                         // bfloat16 of a row of a tile
constexpr int TILE = TILE_SIDE * DEPTH;           // bfloat16 of a tile
constexpr int FLOAT_PARTS = 3, HALF_PARTS = 2;    // bfloat16 of a float32, and of a float16
constexpr int PASS_STEPS = 16;                    // of DEPTH inputs, after which the sums so far are stored
constexpr int FLOAT_PIECE_ROWS = 384, FLOAT_PIECE_PANELS = 24;  // of a piece of work: with PASS_STEPS in the second cache
constexpr int BYTES_DEEP = 64;                    // int8 of a row of a tile
constexpr int INT8_PIECE_ROWS = 512, INT8_PIECE_PANELS = 4;
constexpr int BFLOAT16_PIECE_ROWS = 256, BFLOAT16_PIECE_PANELS = 4;

// Tiles 4 and 5 are rows of a, 6 and 7 outputs of b; tiles 0 to 3 their four sums.
#define LOAD_A(from, distance)      \
  TILE_LOAD(4, (from), 64);         \
  TILE_LOAD(5, (from) + (distance), 64)
#define LOAD_B(from)        \
  TILE_LOAD(6, (from), 64); \
  TILE_LOAD(7, (const char*)(from) + TILE_BYTES, 64)
#define ZERO_SUMS() \
  TILE_ZERO(0);     \
  TILE_ZERO(1);     \
  TILE_ZERO(2);     \
  TILE_ZERO(3)
#define STORE_SUMS(to, stride)                                     \
  TILE_STORE(0, (to), (stride) * 4);                               \
  TILE_STORE(1, (to) + TILE_SIDE, (stride) * 4);                   \
  TILE_STORE(2, (to) + TILE_SIDE * (stride), (stride) * 4);        \
  TILE_STORE(3, (to) + TILE_SIDE * (stride) + TILE_SIDE, (stride) * 4)
#define ADD_PRODUCTS(INSTRUCTION) \
  INSTRUCTION(0, 4, 6);           \
  INSTRUCTION(1, 4, 7);           \
  INSTRUCTION(2, 5, 6);           \
  INSTRUCTION(3, 5, 7)

// The next 8 bits of numbers, in the upper half of 32, which are then taken from them.
INLINE Words next_part(Floats& numbers) {
  Words part = bits_as<Words>(numbers) & 0xffff0000u;
  numbers -= bits_as<Floats>(part);
  return part;
}

typedef uint16_t UpperHalves __attribute__((vector_size(2 * LANES)));

// DEPTH inputs of a row as rows of FLOAT_PARTS tiles, which lie one after the other.
INLINE void split_row(const float* x, uint16_t* tiles) {
  for (int first = 0; first < DEPTH; first += LANES) {
    Floats numbers = load(x + first);
    UNROLL for (int part = 0; part < FLOAT_PARTS; part++) {
      auto upper = __builtin_convertvector(next_part(numbers) >> 16, UpperHalves);
      memcpy(tiles + part * TILE + first, &upper, sizeof upper);
    }
  }
}

// Some rows from `row` on as tiles, [rows / 16, steps, FLOAT_PARTS, 16, DEPTH], those of a block beyond the last one zeros.
void split_rows(const float* x, int64_t num_in, int64_t row, int64_t stop_row, int64_t pass, int64_t steps,
                uint16_t* tiles) {
  const int64_t rows = (stop_row - row + BLOCK - 1) / BLOCK * BLOCK;
  for (int64_t r = 0; r < rows; r++) {
    uint16_t* place = tiles + r / TILE_SIDE * steps * FLOAT_PARTS * TILE + r % TILE_SIDE * DEPTH;
    for (int64_t step = 0; step < steps; step++, place += FLOAT_PARTS * TILE) {
      if (row + r < stop_row) {
        split_row(x + (row + r) * num_in + pass + step * DEPTH, place);
      } else {
        for (int part = 0; part < FLOAT_PARTS; part++) std::fill_n(place + part * TILE, DEPTH, 0);
      }
    }
  }
}

// `steps` times DEPTH inputs of a panel as tiles [steps, HALF_PARTS, 2, 16, 16, 2]: pairs of inputs side by side.
void split_panel(const Half* panel, int64_t steps, uint16_t* tiles) {
  for (int64_t pair = 0; pair < steps * TILE_SIDE; pair++) {
    uint16_t* place = tiles + pair / TILE_SIDE * 2 * HALF_PARTS * TILE + pair % TILE_SIDE * DEPTH;
    for (int side = 0; side < 2; side++) {
      Floats one = load(panel + 2 * pair * PANEL + side * LANES);
      Floats other = load(panel + (2 * pair + 1) * PANEL + side * LANES);
      for (int part = 0; part < HALF_PARTS; part++) {
        Words words = next_part(one) >> 16;
        words |= next_part(other);
        memcpy(place + (2 * part + side) * TILE, &words, sizeof words);
      }
    }
  }
}

// out = a @ b + bias for BLOCK rows and outputs; a's second 16 rows are a_stride numbers after the first.
INLINE void amx_float_block(const uint16_t* a, int64_t a_stride, const uint16_t* b, int64_t steps, const float* bias,
                           float* out, int64_t out_stride) {
  TILE_LOAD(0, bias, 0);  // for every row the same
  TILE_LOAD(1, bias + TILE_SIDE, 0);
  TILE_LOAD(2, bias, 0);
  TILE_LOAD(3, bias + TILE_SIDE, 0);
  for (int64_t step = 0; step < steps; step++, a += FLOAT_PARTS * TILE, b += 2 * HALF_PARTS * TILE) {
    LOAD_B(b);
    LOAD_A(a + 2 * TILE, a_stride);
    ADD_PRODUCTS(TILE_ADD_BFLOAT16);
    LOAD_A(a + TILE, a_stride);
    ADD_PRODUCTS(TILE_ADD_BFLOAT16);
    LOAD_A(a, a_stride);
    ADD_PRODUCTS(TILE_ADD_BFLOAT16);
    LOAD_B(b + 2 * TILE);
    ADD_PRODUCTS(TILE_ADD_BFLOAT16);
    LOAD_A(a + TILE, a_stride);
    ADD_PRODUCTS(TILE_ADD_BFLOAT16);
  }
  STORE_SUMS(out, out_stride);
}

void amx_float_piece(const float* x, const Weight& weight, const float* bias, float* out, int64_t first_row,
                           int64_t stop_row, int64_t first_panel, int64_t stop_panel) {
  const int64_t num_in = weight.num_inputs, num_out = weight.num_outputs;
  const Half* packed = static_cast<const Half*>(weight.values);
  const int64_t row_blocks = (stop_row - first_row + BLOCK - 1) / BLOCK;
  auto rows = scratch<Use::TILES_OF_ROWS, uint16_t>(row_blocks * BLOCK * PASS_STEPS * DEPTH * FLOAT_PARTS);
  auto outputs = scratch<Use::TILES_OF_PANEL, uint16_t>(2 * PASS_STEPS * HALF_PARTS * TILE);
  alignas(64) float sums[BLOCK * BLOCK];
  const float nothing[BLOCK] = {};
  TILES_BEGIN();
  for (int64_t pass = 0; pass < num_in; pass += PASS_STEPS * DEPTH) {
    const int64_t steps = std::min<int64_t>(PASS_STEPS, (num_in - pass) / DEPTH);
    const int64_t stride = steps * FLOAT_PARTS * TILE;
    split_rows(x, num_in, first_row, stop_row, pass, steps, rows);
    for (int64_t panel = first_panel; panel < stop_panel; panel++) {
      split_panel(packed + (panel * num_in + pass) * PANEL, steps, outputs);
      const int64_t column = panel * PANEL, columns = std::min<int64_t>(BLOCK, num_out - column);
      for (int64_t row = first_row; row < stop_row; row += BLOCK) {
        const uint16_t* a = rows + (row - first_row) / TILE_SIDE * stride;
        float* to = out + row * num_out + column;
        if (pass == 0 && row + BLOCK <= stop_row && columns == BLOCK) {
          amx_float_block(a, stride, outputs, steps, bias + column, to, num_out);
          continue;
        }
        amx_float_block(a, stride, outputs, steps, pass == 0 ? bias + column : nothing, sums, BLOCK);
        for (int64_t r = 0; r < std::min<int64_t>(BLOCK, stop_row - row); r++) {
          for (int64_t c = 0; c < columns; c++) {
            to[r * num_out + c] = pass == 0 ? sums[r * BLOCK + c] : to[r * num_out + c] + sums[r * BLOCK + c];
          }
        }
      }
    }
  }
  TILES_END();
}

// Rows of a block as tiles of int8, for each 16 of them [depth / BYTES_DEEP, upper and lower, 16, BYTES_DEEP].
void halve_rows(const int16_t* rounded, int64_t rows, int64_t depth, int64_t first_row, uint8_t* tiles) {
  for (int64_t row = first_row; row < first_row + BLOCK; row++) {
    uint8_t* place = tiles + row / TILE_SIDE * TILE_SIDE * 2 * depth + row % TILE_SIDE * BYTES_DEEP;
    for (int64_t step = 0; step < depth / BYTES_DEEP; step++, place += 2 * TILE_BYTES) {
      for (int i = 0; i < BYTES_DEEP; i++) {
        int number = row < rows ? rounded[row * depth + step * BYTES_DEEP + i] : 0;
        place[i] = (uint8_t)(number >> 8);
        place[TILE_BYTES + i] = (uint8_t)number;
      }
    }
  }
}

// A panel, pairs of inputs side by side, as tiles [depth / BYTES_DEEP, 2, 16, 16, 4]: four side by side.
void regroup_panel(const int8_t* panel, int64_t depth, int8_t* tiles) {
  for (int64_t four = 0; four < depth / 4; four++) {
    int8_t* place = tiles + four / TILE_SIDE * 2 * TILE_BYTES + four % TILE_SIDE * BYTES_DEEP;
    for (int output = 0; output < PANEL; output++) {
      int8_t* to = place + output / TILE_SIDE * TILE_BYTES + output % TILE_SIDE * 4;
      memcpy(to, panel + (2 * four * PANEL + output) * 2, 2);
      memcpy(to + 2, panel + ((2 * four + 1) * PANEL + output) * 2, 2);
    }
  }
}

// sums: of the upper halves and then of the lower ones, int32 [2, BLOCK, BLOCK].
#define MULTIPLY_HALVES(INSTRUCTION, HALF)                \
  ZERO_SUMS();                                            \
  for (int64_t step = 0; step < steps; step++) {          \
    LOAD_A(a + (2 * step + HALF) * TILE_BYTES, a_stride); \
    LOAD_B(b + 2 * step * TILE_BYTES);                    \
    ADD_PRODUCTS(INSTRUCTION);                            \
  }                                                       \
  STORE_SUMS(sums + HALF * BLOCK * BLOCK, BLOCK)

INLINE void amx_int8_block(const uint8_t* a, int64_t a_stride, const int8_t* b, int64_t steps, int32_t* sums) {
  MULTIPLY_HALVES(TILE_ADD_SIGNED, 0);
  MULTIPLY_HALVES(TILE_ADD_UNSIGNED, 1);
}

void amx_int8_piece(const uint8_t* halves, int64_t depth, const float* steps, const Weight& weight, float* out,
                         int64_t first_row, int64_t stop_row, int64_t first_panel, int64_t stop_panel) {
  const int64_t num_out = weight.num_outputs, stride = TILE_SIDE * 2 * depth;
  const int8_t* packed = static_cast<const int8_t*>(weight.values);
  auto outputs = scratch<Use::TILES_OF_PANEL, int8_t>(depth * PANEL);
  alignas(64) int32_t sums[2 * BLOCK * BLOCK];
  TILES_BEGIN();
  for (int64_t panel = first_panel; panel < stop_panel; panel++) {
    regroup_panel(packed + panel * depth * PANEL, depth, outputs);
    const int64_t column = panel * PANEL, columns = std::min<int64_t>(BLOCK, num_out - column);
    for (int64_t row = first_row; row < stop_row; row += BLOCK) {
      amx_int8_block(halves + row * 2 * depth, stride, outputs, depth / BYTES_DEEP, sums);
      for (int64_t r = 0; r < std::min<int64_t>(BLOCK, stop_row - row); r++) {
        float scaled[BLOCK];
        for (int first = 0; first < BLOCK; first += LANES) {
          Ints upper = load_as<Ints>(sums + r * BLOCK + first);
          Ints lower = load_as<Ints>(sums + (BLOCK + r) * BLOCK + first);
          Floats total = to_floats((upper << 8) + lower) * broadcast(steps[row + r]);
          store(scaled + first, total * load(weight.scales + column + first));
        }
        std::copy(scaled, scaled + columns, out + (row + r) * num_out + column);
      }
    }
  }
  TILES_END();
}

// sums: int32 [BLOCK, BLOCK] of rows of a by a panel; both lie as tiles do, with other rows in between.
INLINE void amx_byte_block(const int8_t* a, int64_t depth, const uint8_t* panel, int32_t* sums) {
  ZERO_SUMS();
  for (int64_t first = 0; first < depth; first += BYTES_DEEP) {
    TILE_LOAD(4, a + first, depth);
    TILE_LOAD(5, a + TILE_SIDE * depth + first, depth);
    TILE_LOAD(6, panel + first * PANEL, 4 * PANEL);
    TILE_LOAD(7, panel + first * PANEL + 64, 4 * PANEL);
    ADD_PRODUCTS(TILE_ADD_BYTES);
  }
  STORE_SUMS(sums, BLOCK);
}

void amx_byte_piece(const int8_t* numbers, int64_t depth, const int32_t* offsets, const float* steps, const Weight& weight,
                    float* out, int64_t first_row, int64_t stop_row, int64_t first_panel, int64_t stop_panel) {
  const int64_t num_out = weight.num_outputs;
  const uint8_t* packed = static_cast<const uint8_t*>(weight.values);
  alignas(64) int32_t sums[BLOCK * BLOCK];
  TILES_BEGIN();
  for (int64_t panel = first_panel; panel < stop_panel; panel++) {
    const int64_t column = panel * PANEL, columns = std::min<int64_t>(BLOCK, num_out - column);
    for (int64_t row = first_row; row < stop_row; row += BLOCK) {
      amx_byte_block(numbers + row * depth, depth, packed + panel * depth * PANEL, sums);
      for (int64_t r = row; r < std::min<int64_t>(row + BLOCK, stop_row); r++) {
        float scaled[BLOCK];
        for (int first = 0; first < BLOCK; first += LANES) {
          const Floats total = to_floats(load_as<Ints>(sums + (r - row) * BLOCK + first) - broadcast(offsets[r]));
          store(scaled + first, total * broadcast(steps[r]) * load(weight.scales + column + first));
        }
        std::copy(scaled, scaled + columns, out + r * num_out + column);
      }
    }
  }
  TILES_END();
}

// out, or sums, [BLOCK, BLOCK] of rows of a by a panel; both lie as tiles do, with other rows in between.
INLINE void amx_bfloat16_block(const BFloat16* a, int64_t depth, const BFloat16* panel, float* out, int64_t out_stride) {
  ZERO_SUMS();
  for (int64_t first = 0; first < depth; first += DEPTH) {
    TILE_LOAD(4, a + first, depth * 2);
    TILE_LOAD(5, a + TILE_SIDE * depth + first, depth * 2);
    TILE_LOAD(6, panel + first * PANEL, 4 * PANEL);
    TILE_LOAD(7, panel + first * PANEL + 2 * TILE_SIDE, 4 * PANEL);
    ADD_PRODUCTS(TILE_ADD_BFLOAT16);
  }
  STORE_SUMS(out, out_stride);
}

void amx_bfloat16_piece(const BFloat16* rounded, int64_t depth, const Weight& weight, float* out, int64_t first_row,
                        int64_t stop_row, int64_t first_panel, int64_t stop_panel) {
  const int64_t num_out = weight.num_outputs;
  const BFloat16* packed = static_cast<const BFloat16*>(weight.values);
  alignas(64) float sums[BLOCK * BLOCK];
  TILES_BEGIN();
  for (int64_t panel = first_panel; panel < stop_panel; panel++) {
    const int64_t column = panel * PANEL, columns = std::min<int64_t>(BLOCK, num_out - column);
    for (int64_t row = first_row; row < stop_row; row += BLOCK) {
      const int64_t rows = std::min<int64_t>(BLOCK, stop_row - row);
      const BFloat16* a = rounded + row * depth;
      float* to = out + row * num_out + column;
      if (rows == BLOCK && columns == BLOCK) {
        amx_bfloat16_block(a, depth, packed + panel * depth * PANEL, to, num_out);
        continue;
      }
      amx_bfloat16_block(a, depth, packed + panel * depth * PANEL, sums, BLOCK);
      for (int64_t r = 0; r < rows; r++) std::copy_n(sums + r * BLOCK, columns, to + r * num_out);
    }
  }
  TILES_END();
}

// Call piece(first_row, stop_row, first_panel, stop_panel) for pieces of so many rows and panels.
template <int ROWS, int PANELS, class Piece>
void for_amx_pieces(int64_t rows, int64_t num_outputs, const Piece& piece) {
  const int64_t panels = (num_outputs + PANEL - 1) / PANEL;
  const int64_t groups = (panels + PANELS - 1) / PANELS, parts = (rows + ROWS - 1) / ROWS;
  parallel_for(parts * groups, [&](int64_t index) {
    const int64_t row = index / groups * ROWS, panel = index % groups * PANELS;
    piece(row, std::min(row + ROWS, rows), panel, std::min(panel + PANELS, panels));
  });
}

}  // namespace

bool amx_serves_int8(int64_t depth) { return depth > 0 && depth % BYTES_DEEP == 0; }

void float_product_by_amx(const float* x, int64_t rows, const Weight& weight, const Epilogue& epilogue, float* out) {
  const int64_t panels = (weight.num_outputs + PANEL - 1) / PANEL;
  float* padded = scratch<Use::PADDED_BIAS, float>(panels * PANEL);
  std::fill_n(padded, panels * PANEL, 0.0f);
  if (epilogue.bias) std::copy(epilogue.bias, epilogue.bias + weight.num_outputs, padded);
  const Epilogue activation{nullptr, epilogue.activates, epilogue.activation};  // the sums begin with the bias
  for_amx_pieces<FLOAT_PIECE_ROWS, FLOAT_PIECE_PANELS>(
      rows, weight.num_outputs, [&](int64_t row, int64_t stop_row, int64_t panel, int64_t stop_panel) {
        amx_float_piece(x, weight, padded, out, row, stop_row, panel, stop_panel);
        apply_epilogue(out, weight.num_outputs, activation, row, stop_row, panel, stop_panel);
      });
}

void rounded_product_by_amx(const int16_t* rounded, int64_t rows, int64_t depth, const float* steps,
                             const Weight& weight, const Epilogue& epilogue, float* out) {
  const int64_t blocks = (rows + BLOCK - 1) / BLOCK;
  auto halves = scratch<Use::TILES_OF_ROWS, uint8_t>(blocks * BLOCK * 2 * depth);
  parallel_for(blocks, [&](int64_t block) { halve_rows(rounded, rows, depth, block * BLOCK, halves); });
  for_amx_pieces<INT8_PIECE_ROWS, INT8_PIECE_PANELS>(
      rows, weight.num_outputs, [&](int64_t row, int64_t stop_row, int64_t panel, int64_t stop_panel) {
        amx_int8_piece(halves, depth, steps, weight, out, row, stop_row, panel, stop_panel);
        apply_epilogue(out, weight.num_outputs, epilogue, row, stop_row, panel, stop_panel);
      });
}

bool amx_serves_bytes(int64_t depth) { return sizeof(RowOfQuads) == 1 && amx_serves_int8(depth); }

void byte_product_by_amx(const RowOfQuads* numbers, int64_t rows, int64_t depth, const int32_t* offsets,
                         const float* steps, const Weight& weight, const Epilogue& epilogue, float* out) {
  auto bytes = reinterpret_cast<const int8_t*>(numbers);
  for_amx_pieces<INT8_PIECE_ROWS, INT8_PIECE_PANELS>(
      rows, weight.num_outputs, [&](int64_t row, int64_t stop_row, int64_t panel, int64_t stop_panel) {
        amx_byte_piece(bytes, depth, offsets, steps, weight, out, row, stop_row, panel, stop_panel);
        apply_epilogue(out, weight.num_outputs, epilogue, row, stop_row, panel, stop_panel);
      });
}

bool amx_serves_bfloat16(int64_t depth) { return depth > 0 && depth % DEPTH == 0; }

void bfloat16_product_by_amx(const BFloat16* rounded, int64_t rows, int64_t depth, const Weight& weight,
                             const Epilogue& epilogue, float* out) {
  for_amx_pieces<BFLOAT16_PIECE_ROWS, BFLOAT16_PIECE_PANELS>(
      rows, weight.num_outputs, [&](int64_t row, int64_t stop_row, int64_t panel, int64_t stop_panel) {
        amx_bfloat16_piece(rounded, depth, weight, out, row, stop_row, panel, stop_panel);
        apply_epilogue(out, weight.num_outputs, epilogue, row, stop_row, panel, stop_panel);
      });
}

#else

bool amx_serves_int8(int64_t) { return false; }
void float_product_by_amx(const float*, int64_t, const Weight&, const Epilogue&, float*) { std::abort(); }
void rounded_product_by_amx(const int16_t*, int64_t, int64_t, const float*, const Weight&, const Epilogue&, float*) {
  std::abort();
}
bool amx_serves_bytes(int64_t) { return false; }
void byte_product_by_amx(const RowOfQuads*, int64_t, int64_t, const int32_t*, const float*, const Weight&, const Epilogue&,
                         float*) {
  std::abort();
}
bool amx_serves_bfloat16(int64_t) { return false; }
void bfloat16_product_by_amx(const BFloat16*, int64_t, int64_t, const Weight&, const Epilogue&, float*) { std::abort(); }

#endif

}  // namespace transept
