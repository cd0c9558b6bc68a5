// How ranks that share memory tell each other that their tensors are there. It is compiled, because only C++ can order memory:
// a rank that sees another one's number must also see its tensor, which x86 guarantees by itself and other processors do not.
#include <chrono>

#include "../export.h"

namespace transept {
namespace {

// A rank's numbers, in a cache line of their own.
struct alignas(64) Line {
  int64_t calls;     // that the rank has begun
  int64_t bytes[2];  // of its tensor in each slot
};

enum Arrived : int64_t { OUT_OF_STEP = -1, NOT_YET = 0, ALL = 1 };

}  // namespace
}  // namespace transept

// Announce a rank's tensor for a call, and wait up to some nanoseconds for those of the other ranks. Returns 1 if all are there,
// 0 if not yet, and -1 if one has another size. It may be called again. lines: [size], in memory that all ranks map.
EXPORT int64_t transept_arrive(void* lines, int64_t rank, int64_t size, int64_t call, int64_t bytes, int64_t nanoseconds) {
  using namespace transept;
  auto* numbers = static_cast<Line*>(lines);
  const int64_t slot = call % 2;
  numbers[rank].bytes[slot] = bytes;
  __atomic_store_n(&numbers[rank].calls, call, __ATOMIC_RELEASE);
  const auto has_begun = [&](int64_t other) { return __atomic_load_n(&numbers[other].calls, __ATOMIC_ACQUIRE) >= call; };
  const auto stop = std::chrono::steady_clock::now() + std::chrono::nanoseconds(nanoseconds);
  for (int64_t other = 0; other < size; other++) {
    while (!has_begun(other)) {
      if (std::chrono::steady_clock::now() >= stop) return NOT_YET;
    }
    if (numbers[other].bytes[slot] != bytes) return OUT_OF_STEP;
  }
  return ALL;
}
