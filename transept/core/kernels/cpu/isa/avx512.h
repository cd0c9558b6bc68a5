// Primitives for x86-64 with AVX-512 (F, BW, CD, DQ, VL), and its VNNI and BF16 if the compiler's flags name them. isa.h says
// what each primitive computes.
#ifndef TRANSEPT_ISA_AVX512
#define TRANSEPT_ISA_AVX512

#include <immintrin.h>

namespace transept {

constexpr int LANES = 16;
constexpr int TILE_ROWS = 12, TILE_ROWS_OF_TWO = 6;  // 24 registers of 32 hold sums
constexpr bool PREFETCHES_KEYS = true;

}  // namespace transept

#include "vectors.h"

namespace transept {

INLINE bool any(Ints where) { return _mm512_movepi32_mask((__m512i)where); }

INLINE Floats load(const Half* from) { return (Floats)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)from)); }

INLINE void store_converted(Half* to, Floats numbers) {
  _mm256_storeu_si256((__m256i*)to, _mm512_cvtps_ph((__m512)numbers, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

INLINE float load_one(const Half* from) { return _cvtsh_ss(*from); }

INLINE float sum(Floats vector) { return _mm512_reduce_add_ps((__m512)vector); }

INLINE float highest(Floats vector) { return _mm512_reduce_max_ps((__m512)vector); }

INLINE void sums_of_two(Floats a, Floats b, float& sum_a, float& sum_b) {
  __m512 x = (__m512)a, y = (__m512)b;
  __m512 both = _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x44), _mm512_shuffle_f32x4(x, y, 0xee));
  both = _mm512_add_ps(both, _mm512_shuffle_f32x4(both, both, 0xb1));
  both = _mm512_add_ps(both, _mm512_permute_ps(both, 0x4e));
  both = _mm512_add_ps(both, _mm512_permute_ps(both, 0xb1));
  sum_a = _mm512_cvtss_f32(both);
  sum_b = _mm_cvtss_f32(_mm512_extractf32x4_ps(both, 2));
}

INLINE Floats to_floats(Ints numbers) { return (Floats)_mm512_cvtepi32_ps((__m512i)numbers); }

INLINE Floats inverse(Floats x) {
  const Floats near = (Floats)_mm512_rcp14_ps((__m512)x);
  return near * (broadcast(2.0f) - x * near);
}

INLINE Floats less_floor(Floats x) {
  return (Floats)_mm512_reduce_ps((__m512)x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}

INLINE Floats times_power_of_floor(Floats number, Floats x) {
  const __mmask16 large = _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(-125.0f), _CMP_NLT_UQ);  // also NaN
  return (Floats)_mm512_maskz_scalef_ps(large, (__m512)number, (__m512)x);
}

INLINE Floats less_nearest(Floats x, Floats& nearest) {
  const Floats rest = (Floats)_mm512_reduce_ps((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  nearest = x - rest;
  return rest;
}

INLINE Floats times_power_of_nearest(Floats number, Floats, Floats nearest) {
  return times_power_of_floor(number, nearest);
}

}  // namespace transept
#endif

#if defined(ISA_PAIRS) && !defined(TRANSEPT_ISA_AVX512_PAIRS)
#define TRANSEPT_ISA_AVX512_PAIRS

namespace transept {

constexpr int QUAD_OFFSET = 128;

INLINE Shorts load_shorts(const int8_t* from) {
  return (Shorts)_mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i*)from));
}

INLINE Shorts to_bfloat16_pairs(Floats first, Floats second) {
#if defined(__AVX512BF16__)
  alignas(64) static constexpr uint16_t IN_TURN[] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                     8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512bh numbers = _mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
  return (Shorts)_mm512_permutexvar_epi16(_mm512_load_si512(IN_TURN), (__m512i)numbers);
#else
  return bfloat16_pairs_by_integers(first, second);
#endif
}

INLINE void store_bfloat16(BFloat16* to, Floats first, Floats second) {
#if defined(__AVX512BF16__)
  const __m512bh numbers = _mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
  memcpy(to, &numbers, sizeof numbers);
#else
  store_bfloat16_by_integers(to, first);
  store_bfloat16_by_integers(to + LANES, second);
#endif
}

INLINE Ints dot_pairs(Ints total, Shorts a, Shorts b) {
#if defined(__AVX512VNNI__)
  return (Ints)_mm512_dpwssd_epi32((__m512i)total, (__m512i)a, (__m512i)b);
#else
  return total + (Ints)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#endif
}

INLINE Floats dot_pairs(Floats total, Shorts a, Shorts b) {
#if defined(__AVX512BF16__)
  return (Floats)_mm512_dpbf16_ps((__m512)total, (__m512bh)a, (__m512bh)b);
#else
  return dot_pairs_by_floats(total, a, b);
#endif
}

#if defined(__AVX512VNNI__)
#define HAS_DOT_QUADS
INLINE Ints dot_quads(Ints total, Ints a, Ints b) {
  return (Ints)_mm512_dpbusd_epi32((__m512i)total, (__m512i)a, (__m512i)b);
}
#endif

}  // namespace transept
#endif
