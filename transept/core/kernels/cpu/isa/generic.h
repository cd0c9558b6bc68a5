// Primitives for any processor: the vector extension alone, on whose terms the compiler chooses instructions. isa.h says what
// each primitive computes.
#ifndef TRANSEPT_ISA_GENERIC
#define TRANSEPT_ISA_GENERIC

namespace transept {

constexpr int LANES = 8;                            // two registers of 128 bits
constexpr int TILE_ROWS = 6, TILE_ROWS_OF_TWO = 2;  // 12, or 8, registers of 16
constexpr bool PREFETCHES_KEYS = false;

}  // namespace transept

#include "vectors.h"

namespace transept {

INLINE bool any(Ints where) {
  int32_t all = 0;
  for (int lane = 0; lane < LANES; lane++) all |= where[lane];
  return all;
}

INLINE Floats load(const Half* from) {
  Ints bits;
  for (int lane = 0; lane < LANES; lane++) bits[lane] = from[lane];
  Floats number = bits_as<Floats>((bits & 0x7fff) << 13) * broadcast(0x1p112f);
  Ints beyond = number >= broadcast(65536.0f);  // infinity and NaN
  Ints exponent = beyond & 0x7f800000;
  return bits_as<Floats>(bits_as<Ints>(number) | exponent | ((bits & 0x8000) << 16));
}

INLINE void store_converted(Half* to, Floats numbers) {
  Ints bits = bits_as<Ints>(numbers), size = bits & 0x7fffffff;
  Ints normal = ((size - (112 << 23) + 0xfff + ((size >> 13) & 1)) >> 13);
  Ints small = bits_as<Ints>(bits_as<Floats>(size) + broadcast(0.5f)) - (126 << 23);  // rounded by the addition
  Ints is_small = size < (113 << 23), is_nan = size > 0x7f800000;
  Ints half = (is_small & small) | (~is_small & normal);
  half = (is_nan & 0x7e00) | (~is_nan & half);
  half |= (bits >> 16) & 0x8000;
  for (int lane = 0; lane < LANES; lane++) to[lane] = (Half)half[lane];
}

INLINE float load_one(const Half* from) {
  Half numbers[LANES] = {*from};
  return load(numbers)[0];
}

INLINE float sum(Floats vector) {
  return fold(vector, [](float a, float b) { return a + b; });
}

INLINE float highest(Floats vector) {
  return fold(vector, [](float a, float b) { return a > b ? a : b; });
}

INLINE void sums_of_two(Floats a, Floats b, float& sum_a, float& sum_b) { sum_a = sum(a), sum_b = sum(b); }

INLINE Floats to_floats(Ints numbers) { return __builtin_convertvector(numbers, Floats); }

INLINE Floats inverse(Floats x) { return broadcast(1.0f) / x; }

INLINE Ints floor_of(Floats x) {
  const Ints whole = __builtin_convertvector(x, Ints);
  return whole + (to_floats(whole) > x);
}

INLINE Floats less_floor(Floats x) { return x - to_floats(floor_of(x)); }

INLINE Floats times_power_of_floor(Floats number, Floats x) {
  const Floats power = bits_as<Floats>(bits_as<Ints>(number) + (floor_of(x) << 23));
  return select(x < broadcast(-125.0f), Floats{}, power);
}

INLINE Floats less_nearest(Floats x, Floats& nearest) {
  nearest = x + broadcast(TO_INTEGER);
  return x - (nearest - broadcast(TO_INTEGER));
}

INLINE Floats times_power_of_nearest(Floats number, Floats x, Floats nearest) {
  const Floats power = bits_as<Floats>(bits_as<Ints>(number) + (bits_as<Ints>(nearest) << 23));
  return select(x < broadcast(-125.0f), Floats{}, power);
}

}  // namespace transept
#endif

#if defined(ISA_PAIRS) && !defined(TRANSEPT_ISA_GENERIC_PAIRS)
#define TRANSEPT_ISA_GENERIC_PAIRS

namespace transept {

constexpr int QUAD_OFFSET = 128;

INLINE Shorts load_shorts(const int8_t* from) {
  Shorts numbers;
  for (int lane = 0; lane < 2 * LANES; lane++) numbers[lane] = from[lane];
  return numbers;
}

INLINE Shorts to_bfloat16_pairs(Floats first, Floats second) { return bfloat16_pairs_by_integers(first, second); }

INLINE void store_bfloat16(BFloat16* to, Floats first, Floats second) {
  store_bfloat16_by_integers(to, first);
  store_bfloat16_by_integers(to + LANES, second);
}

INLINE Ints dot_pairs(Ints total, Shorts a, Shorts b) {
  Ints x = bits_as<Ints>(a), y = bits_as<Ints>(b);
  return total + ((x << 16) >> 16) * ((y << 16) >> 16) + (x >> 16) * (y >> 16);
}

INLINE Floats dot_pairs(Floats total, Shorts a, Shorts b) { return dot_pairs_by_floats(total, a, b); }

}  // namespace transept
#endif
