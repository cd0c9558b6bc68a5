// Vectors of one instruction set. Every source is compiled once for each row of isas.py, whose header ISA_HEADER names; no
// other file but those of AMX holds an intrinsic, or asks which processor this is. What kernels find here:
//
//   types       Floats, Ints, Words of LANES numbers; Shorts, LANES pairs of numbers of 16 bits; Half and BFloat16, one number
//   sizes       LANES; PANEL, outputs of a weight that lie side by side
//   tuning      TILE_ROWS and TILE_ROWS_OF_TWO, rows that a tile multiplies by one panel and by two; PREFETCHES_KEYS
//   arithmetic  operators, broadcast, select, maximum, minimum, inverse, to_floats, less_floor, less_nearest, powers of 2
//   memory      load, store, load_one, store_one, copy_row, of float and Half; load_as, prefetch
//   lanes       any, sum, highest, sums_of_two, transpose
//
// A header in isa/ defines, once with the macro ISA_PAIRS and once without it (see isa_pairs.h):
//
//   LANES, TILE_ROWS, TILE_ROWS_OF_TWO, PREFETCHES_KEYS, then includes vectors.h
//   bool any(Ints)                          True if a lane is not 0
//   Floats load(const Half*)                LANES numbers, exact
//   float load_one(const Half*)             one number, exact
//   void store_converted(Half*, Floats)     rounded to the nearest, of two equally near to the even one
//   float sum(Floats), highest(Floats)      of all lanes
//   void sums_of_two(a, b, &sum_a, &sum_b)  of two vectors, which are found together
//   Floats to_floats(Ints)
//   Floats inverse(x)                       1 / x within 2^-23 of it, for x from 2^-126 to 2^126
//   Floats less_floor(x)                    x less its floor; any number for x beyond 2^31 either way
//   Floats times_power_of_floor(number, x)  number from 0.5 to 2, times 2 to the power of x's floor, for x up to 127. For x
//                                           below -125 it is 0: denormal numbers would take a hundred times as long
//   Floats less_nearest(x, &nearest)        x less the integer nearest to it. `nearest` is that integer, in a form that
//   Floats times_power_of_nearest(number, x, nearest)       takes: as times_power_of_floor, for the nearest integer
#if !defined(ISA_HEADER)
#define ISA_HEADER "isa/generic.h"  // for editors; setup.py names the header
#endif
#include ISA_HEADER

#ifndef TRANSEPT_ISA
#define TRANSEPT_ISA

namespace transept {

constexpr int PANEL = 2 * LANES;

// The larger and the smaller number of each lane. If one of the two is NaN the result is b.
INLINE Floats maximum(Floats a, Floats b) { return select(a > b, a, b); }
INLINE Floats minimum(Floats a, Floats b) { return select(a < b, a, b); }

// A unit is what a lane multiplies at a time: here a float, in isa_pairs.h four bytes. ROW_STEPS units of a row are loaded
// together. An instruction set that multiplies by one lane of a vector defines HAS_ROW_STEPS and these functions itself.
#if !defined(HAS_ROW_STEPS)
constexpr int ROW_STEPS = 1;
INLINE Floats load_units(const float* from) { return broadcast(*from); }
INLINE Floats add_product(Floats total, Floats units, int, Floats other) { return total + units * other; }
#endif

struct FloatUnits {
  static constexpr int SIZE = 1, STEPS = ROW_STEPS;
  typedef Floats Sums;
  static INLINE Floats broadcast(const float* from) { return transept::broadcast(*from); }
  static INLINE Floats add(Floats total, Floats unit, Floats other) { return total + unit * other; }
  static INLINE auto load(const float* from) { return load_units(from); }
  template <class Units>
  static INLINE Floats add(Floats total, Units units, int step, Floats other) {
    return add_product(total, units, step, other);
  }
};

// Store numbers as float16. Those beyond its range become its largest; NaN stays NaN.
INLINE void store(Half* to, Floats numbers) {
  const Floats largest = broadcast(65504.0f);
  numbers = select(numbers > largest, largest, numbers);
  numbers = select(numbers < -largest, -largest, numbers);
  store_converted(to, numbers);
}

INLINE float load_one(const float* from) { return *from; }
INLINE void store_one(float* to, float number) { *to = number; }
INLINE void store_one(Half* to, float number) {
  Half numbers[LANES];
  store(numbers, broadcast(number));
  *to = numbers[0];
}

// Copy a row of `size` numbers; see `store` for those that float16 cannot hold.
template <class Number>
INLINE void copy_row(const float* from, int64_t size, Number* to) {
  int64_t i = 0;
  for (; i + LANES <= size; i += LANES) store(to + i, load(from + i));
  for (; i < size; i++) store_one(to + i, from[i]);
}

// Transpose the matrix [LANES, LANES] of these rows. Each round exchanges blocks of `width` lanes between rows that are
// `width` apart.
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

// Prefetch BYTES bytes that lie AHEAD bytes further on, which a loop reads next. They may lie outside the array.
template <int BYTES, int AHEAD, int CACHE = FIRST_CACHE>
INLINE void prefetch(const void* from) {
  UNROLL for (int line = 0; line < BYTES; line += 64) __builtin_prefetch((const char*)from + AHEAD + line, 0, CACHE);
}

}  // namespace transept
#endif
