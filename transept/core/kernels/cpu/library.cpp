// The library as a whole: the sources it was built from, its threads and its scratch memory.
//
// Loops run on PyTorch's own threads, those of GNU OpenMP, if Python finds that in the process: two pools with a thread for
// each core would get in each other's way. Otherwise they run on a pool of this library.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#if defined(_WIN32)
#include <malloc.h>
#endif

#include "export.h"
#include "parallel.h"
#include "scratch.h"

#ifndef FINGERPRINT
#define FINGERPRINT ""
#endif

namespace transept {
namespace {

typedef void (*GompParallel)(void (*)(void*), void*, unsigned, unsigned);
GompParallel gomp_parallel = nullptr;
thread_local int threads_of_loops = 1;

// Threads that wait for tasks. One loop at a time uses them; a loop that finds them in use runs on its own thread alone.
class Pool {
 public:
  void run(int threads, void (*task)(void*), void* data) {
    std::unique_lock<std::mutex> turn(turn_, std::try_to_lock);
    if (!turn.owns_lock()) return task(data);
    try {
      while ((int)size_ < threads - 1) {
        std::thread([this, number = size_, seen = round_] { work(number, seen); }).detach();
        size_++;
      }
    } catch (const std::exception&) {  // the system has no room for another thread: those that there are do the work
    }
    const int others = std::min(threads - 1, (int)size_);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      task_ = task, data_ = data, wanted_ = others, running_ = others;
      round_++;
    }
    begin_.notify_all();
    task(data);
    std::unique_lock<std::mutex> lock(mutex_);
    end_.wait(lock, [this] { return running_ == 0; });
  }

 private:
  void work(unsigned number, uint64_t seen) {
    for (;;) {
      std::unique_lock<std::mutex> lock(mutex_);
      begin_.wait(lock, [&] { return round_ != seen; });
      seen = round_;
      if (number >= (unsigned)wanted_) continue;
      auto task = task_;
      auto data = data_;
      lock.unlock();
      task(data);
      lock.lock();
      if (--running_ == 0) end_.notify_one();
    }
  }

  std::mutex turn_, mutex_;
  std::condition_variable begin_, end_;
  unsigned size_ = 0;
  uint64_t round_ = 0;
  int wanted_ = 0, running_ = 0;
  void (*task_)(void*) = nullptr;
  void* data_ = nullptr;
};

// Scratch memory of all threads.
std::mutex scratch_mutex;  // of the list
ThreadScratch* first_thread = nullptr;
std::atomic<int64_t> scratch_bytes{0};

}  // namespace

std::shared_mutex kernels_running;

void Buffer::grow(size_t bytes) {
  free();
#if defined(_WIN32)
  memory = _aligned_malloc(bytes, 64);
#else
  memory = std::aligned_alloc(64, bytes);
#endif
  if (!memory) throw NoMemory(bytes);
  size = bytes;
  scratch_bytes.fetch_add((int64_t)bytes, std::memory_order_relaxed);
}

void Buffer::free() {
#if defined(_WIN32)
  _aligned_free(memory);
#else
  std::free(memory);
#endif
  scratch_bytes.fetch_sub((int64_t)size, std::memory_order_relaxed);
  memory = nullptr, size = 0;
}

ThreadScratch::ThreadScratch() {
  std::lock_guard<std::mutex> lock(scratch_mutex);
  before = nullptr, after = first_thread;
  if (after) after->before = this;
  first_thread = this;
}

ThreadScratch::~ThreadScratch() {
  std::lock_guard<std::mutex> lock(scratch_mutex);
  (before ? before->after : first_thread) = after;
  if (after) after->before = before;
  for (Buffer& buffer : buffers) buffer.free();
}

int num_threads() { return threads_of_loops; }

void run_in_threads(int threads, void (*task)(void*), void* data) {
  if (gomp_parallel) return gomp_parallel(task, data, (unsigned)threads, 0);
  static Pool* pool = new Pool;  // its threads may outlive every destructor
  pool->run(threads, task, data);
}

}  // namespace transept

// Return the hash of the sources that setup.py computed; see library.py.
EXPORT const char* transept_fingerprint() { return FINGERPRINT; }

// Set the number of threads of this thread's loops.
EXPORT void transept_set_num_threads(int threads) { transept::threads_of_loops = threads < 1 ? 1 : threads; }

// Take GOMP_parallel's address, or null for a pool of this library. Called once, before any loop.
EXPORT void transept_use_gomp(void* gomp_parallel) {
  transept::gomp_parallel = reinterpret_cast<transept::GompParallel>(gomp_parallel);
}

// Return the bytes of scratch memory that all threads keep.
EXPORT int64_t transept_scratch_bytes() { return transept::scratch_bytes.load(std::memory_order_relaxed); }

// Free the scratch memory of all threads. Returns 1, or 0 if a kernel runs; then nothing is freed.
EXPORT int64_t transept_free_scratch() {
  using namespace transept;
  const std::unique_lock<std::shared_mutex> alone(kernels_running, std::try_to_lock);
  if (!alone.owns_lock()) return 0;
  std::lock_guard<std::mutex> lock(scratch_mutex);
  for (ThreadScratch* thread = first_thread; thread; thread = thread->after) {
    for (Buffer& buffer : thread->buffers) buffer.free();
  }
  return 1;
}
