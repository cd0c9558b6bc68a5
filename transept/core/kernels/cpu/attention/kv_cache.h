// A layer's paged cache of keys and values.
#pragma once

#include <cstdint>

namespace transept {

// [keys and values, slots, kv_heads, dim] of float32 or float16. The same fields in kv_cache.py.
struct KVCache {
  void* data;
  int64_t slots;
  int64_t kv_heads;
  int64_t dim;
  int64_t is_half;
};

}  // namespace transept
