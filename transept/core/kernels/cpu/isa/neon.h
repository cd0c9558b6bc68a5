// Primitives for 64-bit Arm with NEON, and its dot products (SDOT) and matrix products (I8MM, BF16) if the compiler's flags name
// them. isa.h says what each primitive computes.
#ifndef TRANSEPT_ISA_NEON
#define TRANSEPT_ISA_NEON

#include <arm_neon.h>

namespace transept {

constexpr int LANES = 4;  // GCC keeps no longer vectors in registers
constexpr int TILE_ROWS = 12, TILE_ROWS_OF_TWO = 5;  // 24, or 20, registers of 32 hold sums
constexpr bool PREFETCHES_KEYS = false;

}  // namespace transept

#include "vectors.h"

namespace transept {

INLINE bool any(Ints where) { return vmaxvq_u32((uint32x4_t)where) != 0; }

INLINE Floats load(const Half* from) { return (Floats)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from))); }

INLINE void store_converted(Half* to, Floats numbers) {
  vst1_u16(to, vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)numbers)));
}

INLINE float load_one(const Half* from) {
  __fp16 number;
  memcpy(&number, from, sizeof number);
  return number;
}

#define HAS_ROW_STEPS
constexpr int ROW_STEPS = 2;
INLINE float32x2_t load_units(const float* from) { return vld1_f32(from); }
INLINE Floats add_product(Floats total, float32x2_t units, int step, Floats other) {
  const float32x4_t sum = (float32x4_t)total, factor = (float32x4_t)other;
  return (Floats)(step == 0 ? vfmaq_lane_f32(sum, factor, units, 0) : vfmaq_lane_f32(sum, factor, units, 1));
}

INLINE float sum(Floats vector) { return vaddvq_f32((float32x4_t)vector); }

INLINE float highest(Floats vector) { return vmaxnmvq_f32((float32x4_t)vector); }

INLINE void sums_of_two(Floats a, Floats b, float& sum_a, float& sum_b) {
  const float32x4_t pairs = vpaddq_f32((float32x4_t)a, (float32x4_t)b);
  const float32x4_t both = vpaddq_f32(pairs, pairs);
  sum_a = vgetq_lane_f32(both, 0);
  sum_b = vgetq_lane_f32(both, 1);
}

INLINE Floats to_floats(Ints numbers) { return __builtin_convertvector(numbers, Floats); }

INLINE Floats inverse(Floats x) { return broadcast(1.0f) / x; }

INLINE Floats less_floor(Floats x) { return x - (Floats)vrndmq_f32((float32x4_t)x); }

INLINE Floats times_power_of_floor(Floats number, Floats x) {
  const Ints floor = (Ints)vcvtmq_s32_f32((float32x4_t)x);
  const Floats power = bits_as<Floats>(bits_as<Ints>(number) + (floor << 23));
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

#if defined(ISA_PAIRS) && !defined(TRANSEPT_ISA_NEON_PAIRS)
#define TRANSEPT_ISA_NEON_PAIRS

namespace transept {

// Keep the compiler from computing other sums before this one, which would take more registers than there are.
template <class Vector>
INLINE Vector in_order(Vector sum) {
#if defined(__clang__)
  asm volatile("" : "+w"(sum));
#endif
  return sum;
}

#if defined(__ARM_FEATURE_DOTPROD)
#define HAS_DOT_QUADS
constexpr int QUAD_OFFSET = 0;
INLINE Ints dot_quads(Ints total, Ints a, Ints b) {
  return (Ints)vdotq_s32((int32x4_t)total, (int8x16_t)a, (int8x16_t)b);
}
INLINE int8x8_t load_units(const int8_t* from) { return vld1_s8(from); }
INLINE Ints add_product(Ints total, int8x8_t units, int step, Ints other) {
  const int32x4_t sum = (int32x4_t)total;
  const int8x16_t factor = (int8x16_t)other;
  return in_order((Ints)(step == 0 ? vdotq_lane_s32(sum, factor, units, 0) : vdotq_lane_s32(sum, factor, units, 1)));
}
#else
constexpr int QUAD_OFFSET = 128;
#endif

#if defined(__ARM_FEATURE_MATMUL_INT8) && defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)  // GCC 12 has no __ARM_FEATURE_BF16
#define HAS_MATRIX_PRODUCTS
INLINE Ints multiply_matrices(Ints total, Ints rows, Ints outputs) {
  return in_order((Ints)vmmlaq_s32((int32x4_t)total, (int8x16_t)rows, (int8x16_t)outputs));
}
INLINE Floats multiply_matrices(Floats total, Shorts rows, Shorts outputs) {
  return in_order((Floats)vbfmmlaq_f32((float32x4_t)total, (bfloat16x8_t)rows, (bfloat16x8_t)outputs));
}
template <class Sums>
INLINE Sums row_of_matrices(Sums first, Sums second, int row) {
  const int64x2_t a = (int64x2_t)first, b = (int64x2_t)second;
  return (Sums)(row == 0 ? vzip1q_s64(a, b) : vzip2q_s64(a, b));
}

INLINE uint16x8_t to_bfloat16(Floats first, Floats second) {
  const bfloat16x8_t low = vcvtq_low_bf16_f32((float32x4_t)first);
  return (uint16x8_t)vcvtq_high_bf16_f32(low, (float32x4_t)second);
}
INLINE Shorts to_bfloat16_pairs(Floats first, Floats second) {
  const uint16x8_t numbers = to_bfloat16(first, second);
  return (Shorts)vzip1q_u16(numbers, vextq_u16(numbers, numbers, LANES));
}
INLINE void store_bfloat16(BFloat16* to, Floats first, Floats second) {
  const uint16x8_t numbers = to_bfloat16(first, second);
  memcpy(to, &numbers, sizeof numbers);
}
INLINE Floats dot_pairs(Floats total, Shorts a, Shorts b) {
#if !defined(__clang__)
  asm("" : "+w"(a), "+w"(b));  // GCC 12 writes constants of bfloat16 as if they were of float16
#endif
  return in_order((Floats)vbfdotq_f32((float32x4_t)total, (bfloat16x8_t)a, (bfloat16x8_t)b));
}

#define HAS_BFLOAT16_STEPS
INLINE bfloat16x4_t load_units(const BFloat16* from) { return load_as<bfloat16x4_t>(from); }
INLINE Floats add_product(Floats total, bfloat16x4_t units, int step, Shorts other) {
  const float32x4_t sum = (float32x4_t)total;
  const bfloat16x8_t factor = (bfloat16x8_t)other;
  return in_order((Floats)(step == 0 ? vbfdotq_lane_f32(sum, factor, units, 0) : vbfdotq_lane_f32(sum, factor, units, 1)));
}
#else
INLINE Shorts to_bfloat16_pairs(Floats first, Floats second) { return bfloat16_pairs_by_integers(first, second); }

INLINE void store_bfloat16(BFloat16* to, Floats first, Floats second) {
  store_bfloat16_by_integers(to, first);
  store_bfloat16_by_integers(to + LANES, second);
}

INLINE Floats dot_pairs(Floats total, Shorts a, Shorts b) { return in_order(dot_pairs_by_floats(total, a, b)); }
#endif

INLINE Shorts load_shorts(const int8_t* from) { return (Shorts)vmovl_s8(vld1_s8(from)); }

INLINE Ints dot_pairs(Ints total, Shorts a, Shorts b) {
  const int16x8_t x = (int16x8_t)a, y = (int16x8_t)b;
  return in_order(total + (Ints)vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)), vmull_high_s16(x, y)));
}


}  // namespace transept
#endif
