// Loops that threads share. Each thread takes one piece after the other from a fetch-add counter, so that none waits for
// one that shares its core with another program, or that runs on a slower core.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace transept {

// Of this thread's loops; set by `transept_set_num_threads`, 1 before.
int num_threads();

// Call task(data) in so many threads, the calling one among them, and wait for all.
void run_in_threads(int threads, void (*task)(void*), void* data);

// Call body(piece) for each piece once, in any order.
template <class Body>
void parallel_for(int64_t pieces, const Body& body) {
  int threads = (int)std::min<int64_t>(num_threads(), pieces);
  if (threads <= 1) {
    for (int64_t piece = 0; piece < pieces; piece++) body(piece);
    return;
  }
  struct Work {
    std::atomic<int64_t> next;
    int64_t pieces;
    const Body& body;
  } work{{0}, pieces, body};
  run_in_threads(
      threads,
      [](void* data) {
        Work& work = *static_cast<Work*>(data);
        for (int64_t piece; (piece = work.next.fetch_add(1, std::memory_order_relaxed)) < work.pieces;) work.body(piece);
      },
      &work);
}

}  // namespace transept
