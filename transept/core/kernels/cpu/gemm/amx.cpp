// Products by AMX. Its numbers, bfloat16 or int8, have 8 bits of precision; more precise numbers are sums of several. A float32
// is the sum of three bfloat16 and a float16 of two, each with the next 8 bits. Their product adds up all products of parts
// but that of the two last parts, which is too small to count. An int16 is two bytes, the upper with a sign, the lower without.
#include "amx.h"

#include <algorithm>
#include <cstdlib>

#include "amx_blocks.h"

namespace transept {

#if defined(TRANSEPT_EMULATE_AMX) || defined(__AMX_TILE__)
namespace {

constexpr int FLOAT_PARTS = 3, HALF_PARTS = 2;    // bfloat16 in a float32, and in a float16
constexpr int PASS_STEPS = 16;                    // steps of DEPTH inputs, after which the sums are stored
constexpr int FLOAT_PIECE_ROWS = 384, FLOAT_PIECE_PANELS = 24;  // a piece of work; a pass of it is in the second cache
constexpr int TILED_PIECE_ROWS = 256, TILED_PIECE_PANELS = 8;   // the same for rounded rows

#define LOAD_B(from)        \
  TILE_LOAD(6, (from), 64); \
  TILE_LOAD(7, (const char*)(from) + TILE_BYTES, 64)

// Subtract from each number its next 8 bits, and return them in the upper half of 32.
INLINE Words next_part(Floats& numbers) {
  Words part = bits_as<Words>(numbers) & 0xffff0000u;
  numbers -= bits_as<Floats>(part);
  return part;
}

// Split DEPTH inputs of a row into one row of each of FLOAT_PARTS tiles. x: [DEPTH], tiles: [FLOAT_PARTS, 16, DEPTH].
INLINE void split_row(const float* x, uint16_t* tiles) {
  for (int first = 0; first < DEPTH; first += LANES) {
    Floats numbers = load(x + first);
    UNROLL for (int part = 0; part < FLOAT_PARTS; part++) {
      auto upper = __builtin_convertvector(next_part(numbers) >> 16, UpperHalves);
      memcpy(tiles + part * TILE + first, &upper, sizeof upper);
    }
  }
}

// Split rows `row` to `stop_row` - 1 into tiles, [rows / 16, steps, FLOAT_PARTS, 16, DEPTH], padded with zeros to a block.
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

// Split a panel of [steps * DEPTH, PANEL] into tiles [steps, HALF_PARTS, 2, 16 pairs, 16 outputs, 2 inputs].
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

// out = a @ b + bias for a block. a: tiles of split_rows, the second 16 rows a_stride numbers after the first. b: tiles of
// split_panel. bias: [BLOCK], out: [BLOCK, BLOCK], rows out_stride numbers apart.
INLINE void amx_float_block(const uint16_t* a, int64_t a_stride, const uint16_t* b, int64_t steps, const float* bias,
                           float* out, int64_t out_stride) {
  TILE_LOAD(0, bias, 0);  // the same for every row
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

// Panels of pairs of inputs, [pairs, PANEL, 2], which are reordered to tiles of quads, [quads, PANEL, 4]. Each panel is
// reordered while the panel before it is multiplied.
class RegroupedPanels {
 public:
  RegroupedPanels(const int8_t* packed, int64_t count, int64_t steps)
      : packed(packed), count(count), size(steps * 2 * TILE_BYTES), tiles(scratch<Use::TILES_OF_PANEL, char>(2 * size)) {
    for (int64_t step = 0; step < steps; step++) regroup(0, step);
  }

  INLINE const char* of(int64_t panel) const { return tiles + panel % 2 * size; }
  INLINE void meanwhile(int64_t panel, int64_t step) const {
    if (panel + 1 < count) regroup(panel + 1, step);
  }

 private:
  const int8_t* packed;
  int64_t count, size;  // panels, and bytes of a panel
  char* tiles;          // two panels

  INLINE void regroup(int64_t panel, int64_t step) const {
    alignas(64) static constexpr uint16_t LOW[] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                                   8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
    const __m512i low = _mm512_load_si512(LOW), high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    const int8_t* from = packed + panel * size + step * 2 * TILE_BYTES;
    char* to = tiles + panel % 2 * size + step * 2 * TILE_BYTES;
    for (int four = 0; four < TILE_SIDE; four++, from += 4 * PANEL, to += 4 * PANEL) {
      prefetch<4 * PANEL, PREFETCH_WEIGHTS>(from);
      const __m512i first = load_as<__m512i>(from), second = load_as<__m512i>(from + 2 * PANEL);
      _mm512_storeu_si512(to, _mm512_permutex2var_epi16(first, low, second));
      _mm512_storeu_si512(to + 2 * PANEL, _mm512_permutex2var_epi16(first, high, second));
    }
  }
};

// Rows of int16 in the order of tiles. A block is the upper halves of 16 rows, then their lower halves.
struct HalvedRows {
  TiledRows tiled;

  static int64_t halves(int64_t rows) { return (rows + TILE_SIDE - 1) / TILE_SIDE * BLOCK; }

  void put(int64_t row, const int16_t* rounded) const {
    const int64_t place = row / TILE_SIDE * BLOCK + row % TILE_SIDE;
    char *high = tiled.of(place), *low = tiled.of(place + TILE_SIDE);
    for (int64_t step = 0; step < tiled.steps; step++, high += TILE_BYTES, low += TILE_BYTES, rounded += BYTES_DEEP) {
      for (int i = 0; i < BYTES_DEEP; i++) {
        high[i] = (char)(rounded[i] >> 8);
        low[i] = (char)rounded[i];
      }
    }
  }
};

template <Numbers NUMBERS>
void rounded_rows_product(const float* x, int64_t rows, int64_t depth, const Weight& weight, const Epilogue& epilogue,
                          float* out) {
  const int64_t num_in = weight.num_inputs, num_out = weight.num_outputs;
  const auto rounded = RoundedRows<NUMBERS>::template make<Use::ROUNDED_ROWS, Use::ROW_OFFSETS, Use::ROW_STEPS>(rows, depth);
  for_rows(rows, [&](int64_t row) { rounded.put(row, x + row * num_in, num_in); });
  const auto finish = [&](SumOf<NUMBERS>* sums, int64_t row, int64_t panel, int64_t first, int64_t stop) INLINE_LAMBDA {
    float* products = rounded.products(sums, first, stop, row, panel, weight);
    apply_to_block(products, first, stop, panel, num_out, epilogue);
    write_rows(products, first, stop, row, panel, num_out, out);
  };
  const TiledPanels panels(weight.values, rounded.tiled.steps);
  for_amx_pieces<TILED_PIECE_ROWS, TILED_PIECE_PANELS>(
      rows, num_out, [&](int64_t row, int64_t stop_row, int64_t panel, int64_t stop_panel) {
        multiply_blocks<NUMBERS>(rounded.tiled, panels, row, stop_row, panel, stop_panel, finish);
      });
}

}  // namespace

bool amx_serves_int8(int64_t depth) { return depth > 0 && depth % BYTES_DEEP == 0; }

void float_product_by_amx(const float* x, int64_t rows, const Weight& weight, const Epilogue& epilogue, float* out) {
  const int64_t panels = (weight.num_outputs + PANEL - 1) / PANEL;
  float* padded = scratch<Use::PADDED_BIAS, float>(panels * PANEL);
  std::fill_n(padded, panels * PANEL, 0.0f);
  if (epilogue.bias) std::copy(epilogue.bias, epilogue.bias + weight.num_outputs, padded);
  const Epilogue activation{nullptr, epilogue.activates, epilogue.activation};  // the sums start from the bias
  for_amx_pieces<FLOAT_PIECE_ROWS, FLOAT_PIECE_PANELS>(
      rows, weight.num_outputs, [&](int64_t row, int64_t stop_row, int64_t panel, int64_t stop_panel) {
        amx_float_piece(x, weight, padded, out, row, stop_row, panel, stop_panel);
        apply_epilogue(out, weight.num_outputs, activation, row, stop_row, panel, stop_panel);
      });
}

void rounded_product_by_amx(const int16_t* rounded, int64_t rows, int64_t depth, const float* row_scales,
                            const Weight& weight, const Epilogue& epilogue, float* out) {
  const int64_t num_out = weight.num_outputs, steps = depth / BYTES_DEEP;
  const int8_t* packed = static_cast<const int8_t*>(weight.values);
  const int64_t size = TiledRows::bytes(HalvedRows::halves(rows), steps);
  const HalvedRows halved{{scratch<Use::TILES_OF_ROWS, char>(size), steps}};
  for_rows(rows, [&](int64_t row) { halved.put(row, rounded + row * depth); });
  const auto piece = [&](int64_t first_row, int64_t stop_row, int64_t first_panel, int64_t stop_panel) {
    const auto finish = [&](int32_t* sums, int64_t half, int64_t index, int64_t first, int64_t stop) INLINE_LAMBDA {
      const int64_t row = half / 2, panel = first_panel + index;
      stop = std::min(stop, std::min<int64_t>(TILE_SIDE, stop_row - row));  // the lower halves follow
      if (first >= stop) return;
      float* products = reinterpret_cast<float*>(sums);
      for (int64_t r = first; r < stop; r++) {
        const Floats row_scale = broadcast(row_scales[row + r]);
        UNROLL for (int lane = 0; lane < PANEL; lane += LANES) {
          const Ints upper = load_as<Ints>(sums + r * PANEL + lane);
          const Ints lower = load_as<Ints>(sums + (TILE_SIDE + r) * PANEL + lane);
          const Floats scaled = to_floats((upper << 8) + lower) * row_scale;
          store(products + r * PANEL + lane, scaled * load(weight.scales + panel * PANEL + lane));
        }
      }
      apply_to_block(products, first, stop, panel, num_out, epilogue);
      write_rows(products, first, stop, row, panel, num_out, out);
    };
    const int64_t panels = stop_panel - first_panel;
    multiply_blocks<Numbers::HALVES_BY_SIGNED>(
        halved.tiled, RegroupedPanels(packed + first_panel * depth * PANEL, panels, steps), 2 * first_row,
        HalvedRows::halves(stop_row), 0, panels, finish);
  };
  for_amx_pieces<TILED_PIECE_ROWS, TILED_PIECE_PANELS>(rows, num_out, piece);
}

bool amx_serves_bytes(int64_t depth) { return sizeof(RowOfQuads) == 1 && amx_serves_int8(depth); }

void byte_product_by_amx(const float* x, int64_t rows, const Weight& weight, const Epilogue& epilogue, float* out) {
  rounded_rows_product<Numbers::SIGNED_BY_UNSIGNED>(x, rows, weight.num_inputs, weight, epilogue, out);
}

bool amx_serves_bfloat16(int64_t depth) { return depth > 0 && depth % DEPTH == 0; }

void bfloat16_product_by_amx(const float* x, int64_t rows, const Weight& weight, const Epilogue& epilogue, float* out) {
  rounded_rows_product<Numbers::BFLOAT16>(x, rows, whole_pairs(weight.num_inputs), weight, epilogue, out);
}

#else

bool amx_serves_int8(int64_t) { return false; }
void float_product_by_amx(const float*, int64_t, const Weight&, const Epilogue&, float*) { std::abort(); }
void rounded_product_by_amx(const int16_t*, int64_t, int64_t, const float*, const Weight&, const Epilogue&, float*) {
  std::abort();
}
bool amx_serves_bytes(int64_t) { return false; }
void byte_product_by_amx(const float*, int64_t, const Weight&, const Epilogue&, float*) { std::abort(); }
bool amx_serves_bfloat16(int64_t) { return false; }
void bfloat16_product_by_amx(const float*, int64_t, const Weight&, const Epilogue&, float*) { std::abort(); }

#endif

}  // namespace transept
