// Scratch memory: room for intermediate results of a kernel. A thread keeps its buffers for the next call, because asking
// the system for them each time would take longer than some kernels. `free_scratch` frees the buffers of all threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <shared_mutex>

namespace transept {

// What a buffer is for. Buffers of different uses may be in use at once, two of one use may not.
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
  VALUE_OFFSETS,
  QUERIES,
  BIASES,
  POSITION_QUERIES,
  POSITION_KEYS,
  POSITION_SCORES,
  SCORES,
  WEIGHTS,
  OUTPUTS,
  PIECE_SUMS,
  PIECE_TOPS,
  PLACES,
  LAYER,
  PATH_COSTS,
  PATH_STEPS,
  COUNT,  // of the uses
};

// The system refused so many bytes. Thrown by `scratch`, caught by `run_kernel`.
struct NoMemory : std::bad_alloc {
  size_t bytes;
  explicit NoMemory(size_t bytes) : bytes(bytes) {}
};

// One thread's buffer for one use.
struct Buffer {
  void* memory = nullptr;
  size_t size = 0;  // bytes

  void grow(size_t bytes);  // throws NoMemory, and is empty then
  void free();
};

// The buffers of a thread, in a list of all threads. They are freed when the thread ends.
struct ThreadScratch {
  Buffer buffers[(size_t)Use::COUNT];
  ThreadScratch *before, *after;

  ThreadScratch();
  ~ThreadScratch();
};

inline thread_local ThreadScratch thread_scratch;

// Held in shared mode while a kernel runs, so that no buffer is freed meanwhile.
extern std::shared_mutex kernels_running;
struct RunningKernel {
  RunningKernel() { kernels_running.lock_shared(); }
  ~RunningKernel() { kernels_running.unlock_shared(); }
};

// Return room for `count` numbers, aligned to 64 bytes and uninitialised. It is this thread's until the thread asks for the
// same use again. Throws NoMemory.
template <Use USE, class Number>
Number* scratch(size_t count) {
  const size_t bytes = (count * sizeof(Number) + 63) / 64 * 64;
  Buffer& buffer = thread_scratch.buffers[(size_t)USE];
  if (bytes > buffer.size) buffer.grow(bytes);
  return static_cast<Number*>(buffer.memory);
}

}  // namespace transept
