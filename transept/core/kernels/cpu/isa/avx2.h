// Primitives for x86-64 with AVX2, FMA and F16C, and AVX-VNNI if the compiler's flags name it. isa.h says what each primitive
// computes.
#ifndef TRANSEPT_ISA_AVX2
#define TRANSEPT_ISA_AVX2

#include <immintrin.h>

namespace transept {

constexpr int LANES = 8;
constexpr int TILE_ROWS = 6, TILE_ROWS_OF_TWO = 2;  // 12, or 8, registers of 16
constexpr bool PREFETCHES_KEYS = false;

}  // namespace transept

#include "vectors.h"

namespace transept {

INLINE bool any(Ints where) { return _mm256_movemask_ps((__m256)where); }

INLINE Floats load(const Half* from) { return (Floats)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)from)); }

INLINE void store_converted(Half* to, Floats numbers) {
  _mm_storeu_si128((__m128i*)to, _mm256_cvtps_ph((__m256)numbers, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

INLINE float load_one(const Half* from) { return _cvtsh_ss(*from); }

INLINE float sum(Floats vector) {
  __m128 four = _mm_add_ps(_mm256_castps256_ps128((__m256)vector), _mm256_extractf128_ps((__m256)vector, 1));
  __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

INLINE float highest(Floats vector) {
  return fold(vector, [](float a, float b) { return a > b ? a : b; });
}

INLINE void sums_of_two(Floats a, Floats b, float& sum_a, float& sum_b) {
  __m256 x = (__m256)a, y = (__m256)b;
  __m256 both = _mm256_add_ps(_mm256_permute2f128_ps(x, y, 0x20), _mm256_permute2f128_ps(x, y, 0x31));
  both = _mm256_add_ps(both, _mm256_permute_ps(both, 0x4e));
  both = _mm256_add_ps(both, _mm256_permute_ps(both, 0xb1));
  sum_a = _mm256_cvtss_f32(both);
  sum_b = _mm_cvtss_f32(_mm256_extractf128_ps(both, 1));
}

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

#if defined(ISA_PAIRS) && !defined(TRANSEPT_ISA_AVX2_PAIRS)
#define TRANSEPT_ISA_AVX2_PAIRS

namespace transept {

constexpr int QUAD_OFFSET = 128;

INLINE Shorts load_shorts(const int8_t* from) {
  return (Shorts)_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)from));
}

INLINE Shorts to_bfloat16_pairs(Floats first, Floats second) { return bfloat16_pairs_by_integers(first, second); }

INLINE void store_bfloat16(BFloat16* to, Floats first, Floats second) {
  store_bfloat16_by_integers(to, first);
  store_bfloat16_by_integers(to + LANES, second);
}

INLINE Ints dot_pairs(Ints total, Shorts a, Shorts b) {
#if defined(__AVXVNNI__)
  return (Ints)_mm256_dpwssd_avx_epi32((__m256i)total, (__m256i)a, (__m256i)b);
#else
  return total + (Ints)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#endif
}

INLINE Floats dot_pairs(Floats total, Shorts a, Shorts b) { return dot_pairs_by_floats(total, a, b); }

#if defined(__AVXVNNI__)
#define HAS_DOT_QUADS
INLINE Ints dot_quads(Ints total, Ints a, Ints b) {
  return (Ints)_mm256_dpbusd_avx_epi32((__m256i)total, (__m256i)a, (__m256i)b);
}
#endif

}  // namespace transept
#endif
