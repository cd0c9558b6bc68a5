// Products by AMX, the matrix instructions of newer Intel processors: 16 rows by 16 outputs at a time.
#pragma once

#include <cstdint>

#include "weight.h"

namespace transept {

// Whether this library, on this processor and system, has products by AMX for weights in int8 of so many inputs.
bool amx_serves_int8(int64_t depth);

// Write (rounded * steps) @ weight.T + bias to out; the sums are the integers of integer_tile.h.
// rounded: int16 [rows, depth], steps: [rows].
void rounded_product_by_amx(const int16_t* rounded, int64_t rows, int64_t depth, const float* steps,
                             const Weight& weight, const float* bias, float* out);

}  // namespace transept
