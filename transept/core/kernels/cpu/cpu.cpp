// Reads the registers in which x86-64 processors tell what they can do, and asks the system for the state of tiles.
// processor.py calls these functions of the portable library, which every processor runs; isas.py says what is read.
#include <cstdint>

#include "export.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

// Return a register (0 to 3 for eax, ebx, ecx, edx) that CPUID writes for a leaf and a subleaf; 0 if there is no such leaf.
// Not __builtin_cpu_supports, whose table some compilers' libraries leave empty.
EXPORT uint32_t transept_cpuid(uint32_t leaf, uint32_t subleaf, uint32_t number) {
  uint32_t registers[4] = {};
#if defined(__x86_64__)
  __get_cpuid_count(leaf, subleaf, &registers[0], &registers[1], &registers[2], &registers[3]);
#else
  (void)leaf, (void)subleaf;
#endif
  return registers[number & 3];
}

// Return XCR0, which names the registers that the system saves. Call it only if CPUID has the bit OSXSAVE.
EXPORT uint64_t transept_saved_state() {
#if defined(__x86_64__)
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t)high << 32 | low;
#else
  return 0;
#endif
}

// Ask Linux to let this process use a state that XCR0 names, such as 18, the data of tiles. Returns 0 if it may.
EXPORT int32_t transept_ask_permission(int32_t state) {
#if defined(__x86_64__) && defined(__linux__)
  const long request_permission = 0x1023;  // ARCH_REQ_XCOMP_PERM of arch_prctl(2)
  return (int32_t)syscall(SYS_arch_prctl, request_permission, (long)state);
#else
  (void)state;
  return -1;
#endif
}
