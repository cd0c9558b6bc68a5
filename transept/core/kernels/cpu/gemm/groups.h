// How many inputs of an output lie side by side in a packed weight, and how many of them a panel has.
#pragma once

#include <cstdint>

#include "../isa_pairs.h"

namespace transept {

#if defined(HAS_MATRIX_PRODUCTS)
constexpr bool MULTIPLIES_MATRICES = true;
#else
constexpr bool MULTIPLIES_MATRICES = false;
#endif
constexpr int BYTE_GROUP = MULTIPLIES_MATRICES ? 8 : 4;      // of weights for rows in int8
constexpr int BFLOAT16_GROUP = MULTIPLIES_MATRICES ? 4 : 2;

// Return the inputs of a panel for rows in int8, padded to groups.
inline int64_t whole_bytes(int64_t num_inputs) { return (num_inputs + BYTE_GROUP - 1) / BYTE_GROUP * BYTE_GROUP; }

// Return the inputs of a panel in bfloat16, padded to groups, or with AMX to whole tiles.
inline int64_t whole_pairs(int64_t num_inputs) {
#if defined(TRANSEPT_EMULATE_AMX) || defined(__AMX_TILE__)
  constexpr int WHOLE = 32;
#else
  constexpr int WHOLE = BFLOAT16_GROUP;
#endif
  return (num_inputs + WHOLE - 1) / WHOLE * WHOLE;
}

}  // namespace transept
