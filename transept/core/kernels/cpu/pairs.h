// Numbers of 8 and 16 bits and what processors multiply in pairs. Apart from simd.h, because instructions of some processors
// do it: sources without this file are compiled once for all that have AVX-512.
#pragma once

#include "simd.h"

namespace transept {

// Two vectors as bfloat16, in pairs: of each lane the first one's number, then the second one's. The nearest, or the even
// one of two that are as near; NaN stays NaN.
INLINE Shorts to_bfloat16_pairs(Floats first, Floats second) {
#if defined(__AVX512BF16__)
  alignas(64) static constexpr uint16_t IN_TURN[] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                     8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512bh numbers = _mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
  return (Shorts)_mm512_permutexvar_epi16(_mm512_load_si512(IN_TURN), (__m512i)numbers);
#else
  const auto rounded = [](Floats number) INLINE_LAMBDA {
    const Ints bits = bits_as<Ints>(number), nan = number != number;
    return (~nan & (bits + 0x7fff + ((bits >> 16) & 1))) | (nan & (bits | 0x400000));
  };
  const Ints low = bits_as<Ints>(bits_as<Words>(rounded(first)) >> 16);
  return bits_as<Shorts>(low | (rounded(second) & ~0xffff));
#endif
}

// 2 * LANES numbers of 8 bits, or of 16, as numbers of 16 bits.
INLINE Shorts load_shorts(const int16_t* from) { return load_as<Shorts>(from); }
INLINE Shorts load_shorts(const BFloat16* from) { return load_as<Shorts>(from); }
INLINE Shorts load_shorts(const int8_t* from) {
#if defined(__AVX512BW__)
  return (Shorts)_mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i*)from));
#elif defined(__AVX2__)
  return (Shorts)_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)from));
#else
  Shorts numbers;
  for (int lane = 0; lane < 2 * LANES; lane++) numbers[lane] = from[lane];
  return numbers;
#endif
}

// Of each lane, `total` and the sum of its two products of 16 bits.
INLINE Ints add_products_of_pairs(Ints total, Shorts a, Shorts b) {
#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
  return (Ints)_mm512_dpwssd_epi32((__m512i)total, (__m512i)a, (__m512i)b);
#elif defined(__AVX512BW__)
  return total + (Ints)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVXVNNI__)
  return (Ints)_mm256_dpwssd_avx_epi32((__m256i)total, (__m256i)a, (__m256i)b);
#elif defined(__AVX2__)
  return total + (Ints)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#else
  Ints x = bits_as<Ints>(a), y = bits_as<Ints>(b);
  return total + ((x << 16) >> 16) * ((y << 16) >> 16) + (x >> 16) * (y >> 16);
#endif
}

// Of each lane, `total` and the sum of four products of bytes, those of a without a sign, where there is an instruction for it.
#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
#define MULTIPLIES_QUADS
INLINE Ints add_products_of_quads(Ints total, Ints a, Ints b) {
  return (Ints)_mm512_dpbusd_epi32((__m512i)total, (__m512i)a, (__m512i)b);
}
#elif defined(__AVXVNNI__) && !defined(__AVX512BW__)
#define MULTIPLIES_QUADS
INLINE Ints add_products_of_quads(Ints total, Ints a, Ints b) {
  return (Ints)_mm256_dpbusd_avx_epi32((__m256i)total, (__m256i)a, (__m256i)b);
}
#endif

// Of each lane, `total` and the sum of its two products of bfloat16, of which the processor takes tiny numbers for 0 where it has an instruction.
INLINE Floats add_products_of_pairs(Floats total, Shorts a, Shorts b) {
#if defined(__AVX512BF16__)
  return (Floats)_mm512_dpbf16_ps((__m512)total, (__m512bh)a, (__m512bh)b);
#else
  const Ints x = bits_as<Ints>(a), y = bits_as<Ints>(b);
  total += bits_as<Floats>(x & ~0xffff) * bits_as<Floats>(y & ~0xffff);
  return total + bits_as<Floats>(x << 16) * bits_as<Floats>(y << 16);
#endif
}

}  // namespace transept
