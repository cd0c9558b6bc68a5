// Loops that threads share. Each thread has a run of neighbouring pieces: what lies behind one in memory, which its core asks
// for ahead, is the next one. When its own run ends it takes what is left of the others', so that none waits for one that
// shares its core with another program, or that runs on a slower core.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace transept {

// Of this thread's loops; set by `transept_set_num_threads`, 1 before.
int num_threads();

// Call task(data) in so many threads, the calling one among them, and wait for all.
void run_in_threads(int threads, void (*task)(void*), void* data);

constexpr int MOST_RUNS = 64;  // more threads share them

// Some pieces, of which each is taken once. On a cache line of its own.
struct alignas(64) PieceRun {
  std::atomic<int64_t> next;
  int64_t stop;

  // Call body(piece) for each that nobody has taken.
  template <class Body>
  void take(const Body& body) {
    for (int64_t piece; (piece = next.fetch_add(1, std::memory_order_relaxed)) < stop;) body(piece);
  }
};

// Call body(piece) for each piece once, in any order.
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
        for (int i = 0; i < work.count; i++) work.runs[(own + i) % work.count].take(work.body);
      },
      &work);
}

}  // namespace transept
