// Which of the libraries this processor can run. Asked of the one that every processor can.
#include <cstdint>

#include "export.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace {

bool has_avx2() {
  unsigned a, b, c, d;
  __get_cpuid(1, &a, &b, &c, &d);
  const bool f16c = c & (1u << 29);
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
         __builtin_cpu_supports("bmi2") && f16c;
}

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

// AMX and AVX512-BF16, and the system's leave to use tiles, which a process asks for once.
bool has_amx() {
#if defined(__linux__)
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  const unsigned amx = 1u << 22 | 1u << 24 | 1u << 25;  // bf16, tile, int8
  if ((d & amx) != amx) return false;
  if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !(a & (1u << 5))) return false;  // AVX512-BF16
  const long request_permission = 0x1023, tile_data = 18;
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}

}  // namespace
#endif

// The number of the highest level that runs here, in the order of library.py.
EXPORT int64_t transept_highest_level() {
#if defined(__x86_64__)
  if (!has_avx2()) return 0;
  if (!has_avx512()) return 1;
  if (!__builtin_cpu_supports("avx512vnni")) return 2;
  return has_amx() ? 4 : 3;
#else
  return 0;
#endif
}
