// The library as a whole: its instruction set, the sources it was built from, and its threads.
//
// Loops run on GNU OpenMP's threads, PyTorch's own, wherever Python finds them in the process: two pools of as many
// threads as there are cores would get in each other's way. Elsewhere they run on a pool of this library.
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "export.h"
#include "parallel.h"

#ifndef FINGERPRINT
#define FINGERPRINT ""
#endif

namespace transept {
namespace {

typedef void (*GompParallel)(void (*)(void*), void*, unsigned, unsigned);
GompParallel gomp_parallel = nullptr;
thread_local int threads_of_loops = 1;

// Threads that wait for tasks. One loop at a time uses it; another one meanwhile runs on its own thread alone.
class Pool {
 public:
  void run(int threads, void (*task)(void*), void* data) {
    std::unique_lock<std::mutex> turn(turn_, std::try_to_lock);
    if (!turn.owns_lock()) return task(data);
    while ((int)size_ < threads - 1) {
      std::thread([this, number = size_, seen = round_] { work(number, seen); }).detach();
      size_++;
    }
    {
      std::lock_guard<std::mutex> lock(mutex_);
      task_ = task, data_ = data, wanted_ = threads - 1, running_ = threads - 1;
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

}  // namespace

int num_threads() { return threads_of_loops; }

void run_in_threads(int threads, void (*task)(void*), void* data) {
  if (gomp_parallel) return gomp_parallel(task, data, (unsigned)threads, 0);
  static Pool* pool = new Pool;  // its threads may outlive every destructor
  pool->run(threads, task, data);
}

}  // namespace transept

// Of the sources; see library.py.
EXPORT const char* transept_fingerprint() { return FINGERPRINT; }

// Let this thread's loops run on so many threads.
EXPORT void transept_set_num_threads(int threads) { transept::threads_of_loops = threads < 1 ? 1 : threads; }

// Take GOMP_parallel's address, or null for a pool of this library. Called once, before any loop.
EXPORT void transept_use_gomp(void* gomp_parallel) {
  transept::gomp_parallel = reinterpret_cast<transept::GompParallel>(gomp_parallel);
}
