// What Python sees of a source: functions with C names, bound in the Python module beside it. All else stays inside the
// library.
#pragma once

#include <cstdint>
#include <type_traits>

#include "scratch.h"

#if defined(_WIN32)
#define EXPORT extern "C" __declspec(dllexport)
#else
#define EXPORT extern "C" __attribute__((visibility("default")))
#endif

namespace transept {

// Run a kernel. Returns what body() returns, 0 for nothing, or minus the number of bytes of scratch memory that the system
// refused, at least 64; library.py makes a CapacityError of that. No kernel returns less than -1 by itself.
template <class Body>
inline __attribute__((always_inline)) int64_t run_kernel(const Body& body) {
  const RunningKernel running;
  try {
    if constexpr (std::is_void_v<decltype(body())>) {
      body();
      return 0;
    } else {
      return body();
    }
  } catch (const NoMemory& refused) {
    return -(int64_t)refused.bytes;
  }
}

}  // namespace transept
