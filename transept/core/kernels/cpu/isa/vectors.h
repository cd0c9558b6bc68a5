// The part of the vectors that every instruction set shares: types of LANES numbers, and arithmetic that the vector extension
// of GCC and Clang expresses. `a * b + c` of two Floats is one fused multiply-add if the processor has it. A header of an
// instruction set defines LANES and includes this file.
#pragma once

#include <cstdint>
#include <cstring>

namespace transept {

#define INLINE inline __attribute__((always_inline))
#define INLINE_LAMBDA __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("unroll")  // loops of a known length over registers
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef uint32_t Words __attribute__((vector_size(4 * LANES)));
typedef int16_t Shorts __attribute__((vector_size(4 * LANES)));          // LANES pairs
typedef uint16_t UpperHalves __attribute__((vector_size(2 * LANES)));    // of Words
typedef uint16_t Half;                                                   // the bits of a float16

struct BFloat16 {  // the upper bits of a float
  uint16_t bits;
};

INLINE Floats broadcast(float number) { return number - Floats{}; }  // exact: subtracts zero
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

INLINE Floats load(const float* from) { return load_as<Floats>(from); }
INLINE void store(float* to, Floats numbers) { memcpy(to, &numbers, sizeof numbers); }
INLINE Floats select(Ints where, Floats yes, Floats no) { return where ? yes : no; }

// Join the halves of a vector until one number is left.
template <class Join>
INLINE float fold(Floats vector, Join join) {
  UNROLL for (int width = LANES / 2; width > 0; width /= 2) {
    UNROLL for (int lane = 0; lane < width; lane++) vector[lane] = join(vector[lane], vector[lane + width]);
  }
  return vector[0];
}

constexpr float TO_INTEGER = 12582912.0f;  // 1.5 * 2^23: adding it rounds a float, whose last bits are then the integer

// Numbers rounded to bfloat16 by integer arithmetic, each in the upper half of its lane: to the nearest, of two equally near
// to the even one. NaN stays NaN.
INLINE Ints rounded_to_bfloat16(Floats numbers) {
  const Ints bits = bits_as<Ints>(numbers), nan = numbers != numbers;
  return (~nan & (bits + 0x7fff + ((bits >> 16) & 1))) | (nan & (bits | 0x400000));
}

INLINE Shorts bfloat16_pairs_by_integers(Floats first, Floats second) {
  const Ints low = bits_as<Ints>(bits_as<Words>(rounded_to_bfloat16(first)) >> 16);
  return bits_as<Shorts>(low | (rounded_to_bfloat16(second) & ~0xffff));
}

INLINE void store_bfloat16_by_integers(BFloat16* to, Floats numbers) {
  const auto upper = __builtin_convertvector(bits_as<Words>(rounded_to_bfloat16(numbers)) >> 16, UpperHalves);
  memcpy(to, &upper, sizeof upper);
}

// Of each lane, `total` and the sum of its two products of bfloat16, in float32.
INLINE Floats dot_pairs_by_floats(Floats total, Shorts a, Shorts b) {
  const Ints x = bits_as<Ints>(a), y = bits_as<Ints>(b);
  total += bits_as<Floats>(x & ~0xffff) * bits_as<Floats>(y & ~0xffff);
  return total + bits_as<Floats>(x << 16) * bits_as<Floats>(y << 16);
}

}  // namespace transept
