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
//   Ints dot_quads(total, Ints a, Ints b)        in each lane total and the sum of four products of a byte of a, without a
//                                                sign, and one of b, with a sign. It is there if HAS_DOT_QUADS is defined
#define ISA_PAIRS
#include "isa.h"

#ifndef TRANSEPT_ISA_PAIRS
#define TRANSEPT_ISA_PAIRS

namespace transept {

// Load 2 * LANES numbers of 16 bits.
INLINE Shorts load_shorts(const int16_t* from) { return load_as<Shorts>(from); }
INLINE Shorts load_shorts(const BFloat16* from) { return load_as<Shorts>(from); }

}  // namespace transept
#endif
