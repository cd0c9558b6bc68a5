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

struct Registers {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

// All zero for what the processor does not tell. Not __builtin_cpu_supports, which not every compiler's library fills.
Registers cpuid(unsigned leaf, unsigned subleaf) {
  Registers r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
  return r;
}

bool has_bits(uint64_t value, uint64_t bits) { return (value & bits) == bits; }

// Which registers the system saves: XCR0.
uint64_t saved_registers() {
  if (!has_bits(cpuid(1, 0).ecx, 1u << 27)) return 0;  // OSXSAVE
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t)high << 32 | low;
}

bool has_avx2() {
  const unsigned fma_f16c = 1u << 12 | 1u << 29;
  const unsigned bmi1_avx2_bmi2 = 1u << 3 | 1u << 5 | 1u << 8;
  const unsigned lzcnt = 1u << 5;
  return has_bits(saved_registers(), 0x6) && has_bits(cpuid(1, 0).ecx, fma_f16c) &&
         has_bits(cpuid(7, 0).ebx, bmi1_avx2_bmi2) && has_bits(cpuid(0x80000001, 0).ecx, lzcnt);
}

bool has_avx_vnni() { return has_bits(cpuid(7, 1).eax, 1u << 4); }

bool has_avx512() {
  const unsigned f_dq_cd_bw_vl = 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31;
  return has_bits(saved_registers(), 0xe6) && has_bits(cpuid(7, 0).ebx, f_dq_cd_bw_vl);
}

bool has_vnni() { return has_bits(cpuid(7, 0).ecx, 1u << 11); }

bool has_bf16() { return has_bits(cpuid(7, 1).eax, 1u << 5); }

// AMX, and the system's leave to use tiles, which a process asks for once.
bool has_amx() {
#if defined(__linux__)
  const unsigned bf16_tile_int8 = 1u << 22 | 1u << 24 | 1u << 25;
  if (!has_bits(cpuid(7, 0).edx, bf16_tile_int8)) return false;
  const long request_permission = 0x1023, tile_data = 18;
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}

}  // namespace
#endif

// The levels that run here, in the order of library.py, the first of them in the lowest bit.
EXPORT int64_t transept_levels() {
  int64_t levels = 1;
#if defined(__x86_64__)
  if (!has_avx2()) return levels;
  levels |= 1 << 1;
  if (has_avx_vnni()) levels |= 1 << 2;
  if (!has_avx512()) return levels;
  levels |= 1 << 3;
  if (!has_vnni()) return levels;
  levels |= 1 << 4;
  if (!has_bf16()) return levels;
  levels |= 1 << 5;
  if (has_amx()) levels |= 1 << 6;
#endif
  return levels;
}
