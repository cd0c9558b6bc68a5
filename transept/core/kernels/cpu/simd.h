// Vectors of one instruction set. Every source is compiled once for each level (see setup.py); the compiler's own macros
// say which one this is. The arithmetic is GCC's and Clang's vector extension: `a * b + c` of two Floats is one fused
// multiply-add where the processor has it. Only what the extension cannot say is an intrinsic here, and nowhere else.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace transept {

#define INLINE inline __attribute__((always_inline))
#define INLINE_LAMBDA __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("unroll")  // loops of a known length over registers
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif

#if defined(__AVX512BW__)
constexpr int LANES = 16;  // floats of a vector
#else
constexpr int LANES = 8;  // two registers of 128 bits where there is no AVX2
#endif
constexpr int PANEL = 2 * LANES;  // outputs of a weight that lie side by side: two vectors

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef uint32_t Words __attribute__((vector_size(4 * LANES)));
typedef int16_t Shorts __attribute__((vector_size(4 * LANES)));  // pairs, as many as there are lanes
typedef uint16_t Half;                                           // the bits of a float16

struct BFloat16 {  // the upper bits of a float
  uint16_t bits;
};

INLINE Floats broadcast(float number) { return number - Floats{}; }  // which no number is changed by
INLINE Ints broadcast(int32_t number) { return Ints{} + number; }

template <class Vector, class Number>
INLINE Vector load_as(const Number* from) {
  Vector vector;
  memcpy(&vector, from, sizeof vector);
  return vector;
}

template <class To, class From>
INLINE To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

INLINE Floats select(Ints where, Floats yes, Floats no) { return where ? yes : no; }
INLINE bool any(Ints where) {
#if defined(__AVX512BW__)
  return _mm512_movepi32_mask((__m512i)where);
#elif defined(__AVX2__)
  return _mm256_movemask_ps((__m256)where);
#else
  int32_t all = 0;
  for (int lane = 0; lane < LANES; lane++) all |= where[lane];
  return all;
#endif
}
// Of a number that is NaN and another one they are the other one, `b`.
INLINE Floats maximum(Floats a, Floats b) { return select(a > b, a, b); }
INLINE Floats minimum(Floats a, Floats b) { return select(a < b, a, b); }

INLINE Floats load(const float* from) { return load_as<Floats>(from); }

INLINE Floats load(const Half* from) {
#if defined(__AVX512BW__)
  return (Floats)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)from));
#elif defined(__F16C__)
  return (Floats)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)from));
#else
  Ints bits;
  for (int lane = 0; lane < LANES; lane++) bits[lane] = from[lane];
  Floats number = bits_as<Floats>((bits & 0x7fff) << 13) * broadcast(0x1p112f);
  Ints beyond = number >= broadcast(65536.0f);  // infinity and NaN
  Ints exponent = beyond & 0x7f800000;
  return bits_as<Floats>(bits_as<Ints>(number) | exponent | ((bits & 0x8000) << 16));
#endif
}

INLINE void store(float* to, Floats number) { memcpy(to, &number, sizeof number); }

// Numbers that float16 cannot hold become its largest; NaN stays what it is.
INLINE void store(Half* to, Floats number) {
  const Floats largest = broadcast(65504.0f);
  number = select(number > largest, largest, number);
  number = select(number < -largest, -largest, number);
#if defined(__AVX512BW__)
  _mm256_storeu_si256((__m256i*)to, _mm512_cvtps_ph((__m512)number, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__F16C__)
  _mm_storeu_si128((__m128i*)to, _mm256_cvtps_ph((__m256)number, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#else
  Ints bits = bits_as<Ints>(number), size = bits & 0x7fffffff;
  Ints normal = ((size - (112 << 23) + 0xfff + ((size >> 13) & 1)) >> 13);
  Ints small = bits_as<Ints>(bits_as<Floats>(size) + broadcast(0.5f)) - (126 << 23);  // rounded by the addition
  Ints is_small = size < (113 << 23), is_nan = size > 0x7f800000;
  Ints half = (is_small & small) | (~is_small & normal);
  half = (is_nan & 0x7e00) | (~is_nan & half);
  half |= (bits >> 16) & 0x8000;
  for (int lane = 0; lane < LANES; lane++) to[lane] = (Half)half[lane];
#endif
}

// One number by itself.
INLINE float load_one(const float* from) { return *from; }
INLINE float load_one(const Half* from) {
#if defined(__F16C__)
  return _cvtsh_ss(*from);
#else
  Half numbers[LANES] = {*from};
  return load(numbers)[0];
#endif
}
INLINE void store_one(float* to, float number) { *to = number; }
INLINE void store_one(Half* to, float number) {
  Half numbers[LANES];
  store(numbers, broadcast(number));
  *to = numbers[0];
}

// Copy a row; see `store` for numbers that float16 cannot hold.
template <class Number>
INLINE void copy_row(const float* from, int64_t size, Number* to) {
  int64_t i = 0;
  for (; i + LANES <= size; i += LANES) store(to + i, load(from + i));
  for (; i < size; i++) store_one(to + i, from[i]);
}

// The sum and the highest of a vector's numbers: halves are joined until one is left.
template <class Join>
INLINE float fold(Floats vector, Join join) {
  UNROLL for (int width = LANES / 2; width > 0; width /= 2) {
    UNROLL for (int lane = 0; lane < width; lane++) vector[lane] = join(vector[lane], vector[lane + width]);
  }
  return vector[0];
}

INLINE float sum(Floats vector) {
#if defined(__AVX512BW__)
  return _mm512_reduce_add_ps((__m512)vector);
#elif defined(__AVX2__)
  __m128 four = _mm_add_ps(_mm256_castps256_ps128((__m256)vector), _mm256_extractf128_ps((__m256)vector, 1));
  __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
#else
  return fold(vector, [](float a, float b) { return a + b; });
#endif
}

INLINE float highest(Floats vector) {
#if defined(__AVX512BW__)
  return _mm512_reduce_max_ps((__m512)vector);
#else
  return fold(vector, [](float a, float b) { return a > b ? a : b; });
#endif
}

// The sums of two vectors, which are found together.
INLINE void sums_of_two(Floats a, Floats b, float& sum_a, float& sum_b) {
#if defined(__AVX512BW__)
  __m512 x = (__m512)a, y = (__m512)b;
  __m512 both = _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x44), _mm512_shuffle_f32x4(x, y, 0xee));
  both = _mm512_add_ps(both, _mm512_shuffle_f32x4(both, both, 0xb1));
  both = _mm512_add_ps(both, _mm512_permute_ps(both, 0x4e));
  both = _mm512_add_ps(both, _mm512_permute_ps(both, 0xb1));
  sum_a = _mm512_cvtss_f32(both);
  sum_b = _mm_cvtss_f32(_mm512_extractf32x4_ps(both, 2));
#elif defined(__AVX2__)
  __m256 x = (__m256)a, y = (__m256)b;
  __m256 both = _mm256_add_ps(_mm256_permute2f128_ps(x, y, 0x20), _mm256_permute2f128_ps(x, y, 0x31));
  both = _mm256_add_ps(both, _mm256_permute_ps(both, 0x4e));
  both = _mm256_add_ps(both, _mm256_permute_ps(both, 0xb1));
  sum_a = _mm256_cvtss_f32(both);
  sum_b = _mm_cvtss_f32(_mm256_extractf128_ps(both, 1));
#else
  sum_a = sum(a), sum_b = sum(b);
#endif
}

constexpr float TO_INTEGER = 12582912.0f;  // 1.5 * 2^23: a float to which it is added is rounded, its last bits the integer

INLINE Floats to_floats(Ints numbers) {
#if defined(__AVX512BW__)
  return (Floats)_mm512_cvtepi32_ps((__m512i)numbers);
#else
  return __builtin_convertvector(numbers, Floats);
#endif
}

// 1 / x within 2^-23 of it, for x from 2^-126 to 2^126.
INLINE Floats inverse(Floats x) {
#if defined(__AVX512BW__)
  const Floats near = (Floats)_mm512_rcp14_ps((__m512)x);
  return near * (broadcast(2.0f) - x * near);
#else
  return broadcast(1.0f) / x;
#endif
}

// The greatest integer that is not above x, for x between -2^31 and 2^31.
INLINE Ints floor_of(Floats x) {
  const Ints whole = __builtin_convertvector(x, Ints);
  return whole + (to_floats(whole) > x);
}

// x less its floor. Of what is beyond 2^31 either way it may be any number.
INLINE Floats less_floor(Floats x) {
#if defined(__AVX512BW__)
  return (Floats)_mm512_reduce_ps((__m512)x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
#else
  return x - to_floats(floor_of(x));
#endif
}

// x less the nearest integer, where the processor has an instruction for it.
#if defined(__AVX512BW__)
INLINE Floats less_nearest(Floats x) {
  return (Floats)_mm512_reduce_ps((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
#endif

// A number from 0.5 to 2, times 2 to the power of x's floor, for x up to 127; for x below -125 it is 0: numbers that small
// would take the processor a hundred times as long.
INLINE Floats times_power_of_floor(Floats number, Floats x) {
#if defined(__AVX512BW__)
  const __mmask16 large = _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(-125.0f), _CMP_NLT_UQ);  // NaN, too
  return (Floats)_mm512_maskz_scalef_ps(large, (__m512)number, (__m512)x);
#else
  const Floats power = bits_as<Floats>(bits_as<Ints>(number) + (floor_of(x) << 23));
  return select(x < broadcast(-125.0f), Floats{}, power);
#endif
}

// Exchange rows and columns of LANES vectors: of two vectors `width` apart, so many lanes of one for those of the other.
INLINE void transpose(Floats (&rows)[LANES]) {
  UNROLL for (int width = 1; width < LANES; width *= 2) {
    Ints low, high;  // lanes of both vectors, those of the second one from LANES on
    UNROLL for (int lane = 0; lane < LANES; lane++) {
      low[lane] = lane & width ? LANES + lane - width : lane;
      high[lane] = lane & width ? LANES + lane : lane + width;
    }
    UNROLL for (int row = 0; row < LANES; row++) {
      if (row & width) continue;
      const Floats a = rows[row], b = rows[row + width];
#if defined(__clang__)
      UNROLL for (int lane = 0; lane < LANES; lane++) {
        rows[row][lane] = low[lane] < LANES ? a[low[lane]] : b[low[lane] - LANES];
        rows[row + width][lane] = high[lane] < LANES ? a[high[lane]] : b[high[lane] - LANES];
      }
#else
      rows[row] = __builtin_shuffle(a, b, low);
      rows[row + width] = __builtin_shuffle(a, b, high);
#endif
    }
  }
}

constexpr int SECOND_CACHE = 2, FIRST_CACHE = 3;  // as the compiler numbers them

// Ask for what lies `ahead` bytes further on, which a loop reads next; it may lie outside the array.
template <int BYTES, int AHEAD, int CACHE = FIRST_CACHE>
INLINE void prefetch(const void* from) {
  UNROLL for (int line = 0; line < BYTES; line += 64) __builtin_prefetch((const char*)from + AHEAD + line, 0, CACHE);
}

}  // namespace transept
