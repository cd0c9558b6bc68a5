// The instructions of AMX on its eight tile registers, each of 16 rows of 64 bytes. They are macros because a register's
// number is part of the instruction. With TRANSEPT_EMULATE_AMX they are plain loops, for tests on other processors.
#pragma once

#include <numeric>

#include "../isa.h"

namespace transept {

constexpr int TILE_SIDE = 16;   // rows of a tile, and its outputs
constexpr int TILE_BYTES = 1024;

#if defined(TRANSEPT_EMULATE_AMX)

struct EmulatedTile {
  alignas(64) uint8_t bytes[TILE_SIDE][64];

  template <class Number>
  Number at(int row, int column) const {
    Number number;
    memcpy(&number, bytes[row] + column * sizeof number, sizeof number);
    return number;
  }

  // this[row, column] += the sum over k of product(a[row, k], b[k / PER_WORD, column, k % PER_WORD])
  template <class Sum, class A, class B, class Product>
  void add_product(const EmulatedTile& a, const EmulatedTile& b, Product product) {
    constexpr int PER_WORD = 4 / sizeof(A);
    for (int row = 0; row < TILE_SIDE; row++) {
      for (int column = 0; column < TILE_SIDE; column++) {
        Sum sums[PER_WORD] = {};  // one sum for each place in a word, like the instructions
        for (int k = 0; k < TILE_SIDE * PER_WORD; k++) {
          sums[k % PER_WORD] += product(a.at<A>(row, k), b.at<B>(k / PER_WORD, column * PER_WORD + k % PER_WORD));
        }
        Sum sum = at<Sum>(row, column) + std::accumulate(sums, sums + PER_WORD, Sum{});
        memcpy(bytes[row] + column * 4, &sum, 4);
      }
    }
  }
};

inline thread_local EmulatedTile emulated_tiles[8];

inline float widen_bfloat16(uint16_t bits) { return bits_as<float>((uint32_t)bits << 16); }

#define TILES_BEGIN(...)
#define TILES_END()
#define TILE_ZERO(tile) memset(&emulated_tiles[tile], 0, TILE_BYTES)
#define TILE_LOAD(tile, from, stride) \
  for (int row = 0; row < TILE_SIDE; row++) memcpy(emulated_tiles[tile].bytes[row], (const char*)(from) + row * (stride), 64)
#define TILE_STORE(tile, to, stride) \
  for (int row = 0; row < TILE_SIDE; row++) memcpy((char*)(to) + row * (stride), emulated_tiles[tile].bytes[row], 64)
#define TILE_ADD_BFLOAT16(sums, a, b)                                         \
  emulated_tiles[sums].add_product<float, uint16_t, uint16_t>(                \
      emulated_tiles[a], emulated_tiles[b],                                   \
      [](uint16_t x, uint16_t y) { return widen_bfloat16(x) * widen_bfloat16(y); })
#define TILE_ADD_SIGNED_BY_SIGNED(sums, a, b)                            \
  emulated_tiles[sums].add_product<int32_t, int8_t, int8_t>(   \
      emulated_tiles[a], emulated_tiles[b], [](int8_t x, int8_t y) { return (int32_t)x * y; })
#define TILE_ADD_UNSIGNED_BY_SIGNED(sums, a, b)                          \
  emulated_tiles[sums].add_product<int32_t, uint8_t, int8_t>(  \
      emulated_tiles[a], emulated_tiles[b], [](uint8_t x, int8_t y) { return (int32_t)x * y; })
#define TILE_ADD_SIGNED_BY_UNSIGNED(sums, a, b)                             \
  emulated_tiles[sums].add_product<int32_t, int8_t, uint8_t>(  \
      emulated_tiles[a], emulated_tiles[b], [](int8_t x, uint8_t y) { return (int32_t)x * y; })

#elif defined(__AMX_TILE__)

// The operand of _tile_loadconfig: palette 1, and for each tile the bytes of a row and the number of rows.
struct TileSettings {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// few: rows of tiles 0, 1 and 4. A product takes about as many cycles.
inline void configure_tiles(int few = TILE_SIDE) {
  TileSettings settings;
  settings.rows[0] = settings.rows[1] = settings.rows[4] = (uint8_t)few;
  _tile_loadconfig(&settings);
}

// The compiler does not know that loading a tile reads memory. This makes it write pending stores first.
#define MEMORY_IS_READ() asm volatile("" ::: "memory")
#define TILES_BEGIN(...) configure_tiles(__VA_ARGS__)
#define TILES_END() _tile_release()
#define TILE_ZERO(tile) _tile_zero(tile)
#define TILE_LOAD(tile, from, stride) (void)({ MEMORY_IS_READ(); _tile_loadd(tile, from, stride); 0; })
#define TILE_STORE(tile, to, stride) (void)({ _tile_stored(tile, to, stride); MEMORY_IS_READ(); 0; })
#define TILE_ADD_BFLOAT16(sums, a, b) _tile_dpbf16ps(sums, a, b)
#define TILE_ADD_SIGNED_BY_SIGNED(sums, a, b) _tile_dpbssd(sums, a, b)
#define TILE_ADD_UNSIGNED_BY_SIGNED(sums, a, b) _tile_dpbusd(sums, a, b)
#define TILE_ADD_SIGNED_BY_UNSIGNED(sums, a, b) _tile_dpbsud(sums, a, b)

#endif

}  // namespace transept
