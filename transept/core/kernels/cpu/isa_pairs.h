// isa.h, and the dot products of small numbers: pairs of 16 bits, and four bytes at a time. They are apart because some
// instruction sets differ in nothing else: setup.py compiles a source without this file once for all of them. A header in isa/
// defines below its `#if defined(ISA_PAIRS)`:
//
//   Shorts load_shorts(const int8_t*)            2 * LANES numbers
//   Shorts to_bfloat16_pairs(first, second)      each lane's numbers side by side, rounded to the nearest, of two equally near
//                                                to the even one; NaN stays NaN
//   void store_bfloat16(BFloat16*, one, other)   2 * LANES numbers in a row, rounded in the same way
//   Ints dot_pairs(total, Shorts a, Shorts b)    in each lane total and the sum of two products of int16
//   Floats dot_pairs(total, Shorts a, Shorts b)  the same of bfloat16. An instruction for it may take denormal numbers for 0
//   Ints dot_quads(total, Ints a, Ints b)        in each lane total and the sum of four products of a byte of a and one of b,
//                                                with a sign. It is there if HAS_DOT_QUADS is defined
//   multiply_matrices(total, rows, outputs)      adds the products of two rows by two outputs, each of 16 / 2 bytes of int8 (Ints)
//                                                or bfloat16 (Shorts); total has two rows. It is there if HAS_MATRIX_PRODUCTS is
//   row_of_matrices(first, second, row)          a row, 0 or 1, of two such totals side by side
//   QUAD_OFFSET                                  128 if dot_quads takes bytes of a without a sign, 0 if it takes them with one
#define ISA_PAIRS
#include "isa.h"

#include <type_traits>

#ifndef TRANSEPT_ISA_PAIRS
#define TRANSEPT_ISA_PAIRS

namespace transept {

// Load 2 * LANES numbers of 16 bits.
INLINE Shorts load_shorts(const int16_t* from) { return load_as<Shorts>(from); }
INLINE Shorts load_shorts(const BFloat16* from) { return load_as<Shorts>(from); }

// Two numbers of a row, in int16 or bfloat16.
template <class Number>
struct PairUnits {
  static constexpr int SIZE = 2, STEPS = 1;
  typedef std::conditional_t<std::is_same_v<Number, BFloat16>, Floats, Ints> Sums;
  static INLINE Shorts load(const Number* from) {
    return bits_as<Shorts>(broadcast(load_as<int32_t>(from)));
  }
  static INLINE Sums add(Sums total, Shorts pair, int, Shorts other) { return dot_pairs(total, pair, other); }
};

#if defined(HAS_BFLOAT16_STEPS)  // as HAS_ROW_STEPS
template <>
struct PairUnits<BFloat16> {
  static constexpr int SIZE = 2, STEPS = ROW_STEPS;
  typedef Floats Sums;
  static INLINE Shorts broadcast(const BFloat16* from) { return bits_as<Shorts>(transept::broadcast(load_as<int32_t>(from))); }
  static INLINE Floats add(Floats total, Shorts pair, Shorts other) { return dot_pairs(total, pair, other); }
  static INLINE auto load(const BFloat16* from) { return load_units(from); }
  template <class Pairs>
  static INLINE Floats add(Floats total, Pairs pairs, int step, Shorts other) {
    return add_product(total, pairs, step, other);
  }
};
#endif

#if defined(HAS_DOT_QUADS)
struct QuadUnits {
  static constexpr int SIZE = 4, STEPS = ROW_STEPS;
  typedef Ints Sums;
  static INLINE Ints broadcast(const int8_t* from) { return transept::broadcast(load_as<int32_t>(from)); }
  static INLINE Ints add(Ints total, Ints quad, Ints other) { return dot_quads(total, other, quad); }
#if defined(HAS_ROW_STEPS)
  static INLINE auto load(const int8_t* from) { return load_units(from); }
  template <class Quads>
  static INLINE Ints add(Ints total, Quads quads, int step, Ints other) {
    return add_product(total, quads, step, other);
  }
#else
  static INLINE Ints load(const int8_t* from) { return broadcast(from); }
  static INLINE Ints add(Ints total, Ints quads, int, Ints other) { return add(total, quads, other); }
#endif
};
#endif

#if defined(HAS_MATRIX_PRODUCTS)
constexpr int MATRIX_BYTES = 8;  // of a row or an output that an instruction multiplies

// Two rows of such a matrix, in int8 or bfloat16.
template <class Number>
struct MatrixUnits {
  static constexpr int SIZE = 2 * MATRIX_BYTES / sizeof(Number), STEPS = 1;
  typedef std::conditional_t<sizeof(Number) == 1, Ints, Floats> Sums;
  typedef std::conditional_t<sizeof(Number) == 1, Ints, Shorts> Parts;
  static INLINE Parts load(const Number* from) { return load_as<Parts>(from); }
  static INLINE Sums add(Sums total, Parts rows, int, Parts outputs) { return multiply_matrices(total, rows, outputs); }
};
#endif

}  // namespace transept
#endif
