// Loops that threads share. Each thread has a run of neighbouring pieces, because a core prefetches what follows in memory.
// A thread whose run has ended takes pieces from the other runs, so no thread waits for one that shares its core with
// another program or has a slower core.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "scratch.h"

namespace transept {

// Return the number of threads of this thread's loops: 1 until `transept_set_num_threads` sets it.
int num_threads();

// Call task(data) in up to so many threads, the calling one among them, and wait for all. The task throws nothing.
void run_in_threads(int threads, void (*task)(void*), void* data);

constexpr int MOST_RUNS = 64;  // if there are more threads, some share a run

// Neighbouring pieces, each of which is taken once. The struct has a cache line of its own.
struct alignas(64) PieceRun {
  std::atomic<int64_t> next;
  int64_t stop;

  // Call body(piece) for each piece that no thread has taken.
  template <class Body>
  void take(const Body& body) {
    for (int64_t piece; (piece = next.fetch_add(1, std::memory_order_relaxed)) < stop;) body(piece);
  }
};

// Call body(piece) for each piece once, in any order. Throws NoMemory if a thread has not got its scratch memory.
template <class Body>
void parallel_for(int64_t pieces, const Body& body) {
  const int threads = (int)std::min<int64_t>(num_threads(), pieces);
  if (threads <= 1) {
    for (int64_t piece = 0; piece < pieces; piece++) body(piece);
    return;
  }
  struct Work {
    const Body& body;
    int count;
    std::atomic<int> threads_begun;
    std::atomic<size_t> refused{0};  // bytes of scratch memory
    PieceRun runs[MOST_RUNS];

    Work(const Body& body, int64_t pieces, int count) : body(body), count(count), threads_begun(0) {
      for (int run = 0; run < count; run++) {
        runs[run].next.store(run * pieces / count, std::memory_order_relaxed);
        runs[run].stop = (run + 1) * pieces / count;
      }
    }
  } work(body, pieces, std::min(threads, MOST_RUNS));
  run_in_threads(
      threads,
      [](void* data) {
        Work& work = *static_cast<Work*>(data);
        const int own = work.threads_begun.fetch_add(1, std::memory_order_relaxed);
        try {
          for (int i = 0; i < work.count; i++) work.runs[(own + i) % work.count].take(work.body);
        } catch (const NoMemory& refused) {  // an exception may not leave a thread of OpenMP
          work.refused.store(refused.bytes, std::memory_order_relaxed);
        }
      },
      &work);
  if (const size_t bytes = work.refused.load(std::memory_order_relaxed)) throw NoMemory(bytes);
}

}  // namespace transept
