// Memory for what is between two steps of a kernel. A thread keeps it for its next call: to ask the system for it each
// time would take longer than some kernels.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace transept {

// What a buffer is for: buffers of different uses may be in use at once, those of one use may not.
enum class Use {
  ROUNDED_ROWS,
  ROW_STEPS,
  ROW_OFFSETS,
  TILES_OF_ROWS,
  TILES_OF_PANEL,
  BLOCK_SUMS,
  HIDDEN,
  HIDDEN_ROWS,
  HIDDEN_OFFSETS,
  HIDDEN_STEPS,
  PADDED_BIAS,
  KEYS,
  KEY_SCALES,
  VALUES,
  VALUE_SCALES,
  QUERIES,
  BIASES,
  SCORES,
  WEIGHTS,
  OUTPUTS,
  PIECE_SUMS,
  PIECE_TOPS,
  PLACES,
  LAYER,
};

// Room for so many numbers, aligned to 64 bytes, uninitialised, this thread's until it asks for the same use again.
template <Use USE, class Number>
Number* scratch(size_t count) {
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  static thread_local std::unique_ptr<void, Free> memory;
  static thread_local size_t size = 0;
  size_t bytes = (count * sizeof(Number) + 63) / 64 * 64;
  if (bytes > size) {
    memory.reset();
    memory.reset(std::aligned_alloc(64, bytes));
    if (!memory) std::abort();  // the system's memory is at its end
    size = bytes;
  }
  return static_cast<Number*>(memory.get());
}

}  // namespace transept
