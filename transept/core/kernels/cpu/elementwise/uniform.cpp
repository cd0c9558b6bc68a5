// Uniform random numbers that depend on a key and a place only, by SplitMix64 (Steele, Lea and Flood 2014).
#include <algorithm>
#include <cstdint>

#include "../export.h"
#include "../parallel.h"
#include "math.h"

namespace transept {
namespace {

constexpr int64_t PIECE_NUMBERS = 8192;
constexpr uint64_t STEP = 0x9E3779B97F4A7C15, FIRST = 0xBF58476D1CE4E5B9, SECOND = 0x94D049BB133111EB;
constexpr float LEAST = 0x1p-64f, MOST = 1 - 0x1p-24f;  // neither 0 nor 1

typedef uint64_t Bits __attribute__((vector_size(8 * LANES)));
typedef int64_t SignedBits __attribute__((vector_size(8 * LANES)));

INLINE Bits mixed(Bits bits) {
  bits = (bits ^ (bits >> 30)) * FIRST;
  bits = (bits ^ (bits >> 27)) * SECOND;
  return bits ^ (bits >> 31);
}

}  // namespace
}  // namespace transept

// Fill out, [rows, count], with numbers between 0 and 1: for each key, [rows], the places from 1 on.
EXPORT int64_t transept_uniform(const uint64_t* keys, int64_t rows, int64_t count, float* out) {
  using namespace transept;
  return run_kernel([&] {
    const int64_t pieces = (count + PIECE_NUMBERS - 1) / PIECE_NUMBERS;
    parallel_for(rows * pieces, [&](int64_t piece) {
      const int64_t row = piece / pieces, first = piece % pieces * PIECE_NUMBERS;
      Bits places;
      for (int lane = 0; lane < LANES; lane++) places[lane] = first + 1 + lane;
      for_vectors(out + row * count + first, std::min(PIECE_NUMBERS, count - first), [&](Floats, int64_t) INLINE_LAMBDA {
        const SignedBits bits = (SignedBits)(mixed(keys[row] + places * STEP) >> 1);
        const Floats number = __builtin_convertvector(bits, Floats) * broadcast(0x1p-63f);
        places += LANES;
        return minimum(maximum(number, broadcast(LEAST)), broadcast(MOST));
      });
    });
  });
}
