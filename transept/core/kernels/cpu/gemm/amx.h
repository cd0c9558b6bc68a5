// Products by AMX, the matrix instructions of newer Intel processors: 16 rows by 16 outputs at a time.
#pragma once

#include <cstdint>

#include "../simd.h"
#include "quad_tile.h"
#include "weight.h"

namespace transept {

constexpr int AMX_ROWS = 32;  // that are multiplied at a time

// Whether this library, on this processor and system, has products by AMX for weights in int8 of so many inputs.
bool amx_serves_int8(int64_t depth);

// Write (rounded * steps) @ weight.T to out, with the epilogue; the sums are the integers of integer_tile.h.
// rounded: int16 [rows, depth], steps: [rows].
void rounded_product_by_amx(const int16_t* rounded, int64_t rows, int64_t depth, const float* steps,
                             const Weight& weight, const Epilogue& epilogue, float* out);

// The same for rows in int8.
bool amx_serves_bytes(int64_t depth);

// Write ((numbers @ weight.T) - offsets) * steps * scales to out, with the epilogue.
// numbers: [rows, depth], readable for AMX_ROWS more rows. offsets, steps: [rows].
void byte_product_by_amx(const RowOfQuads* numbers, int64_t rows, int64_t depth, const int32_t* offsets,
                         const float* steps, const Weight& weight, const Epilogue& epilogue, float* out);

// The same for weights in bfloat16, of any number of rows: their sums are not to the last bit those of pair_tile.h.
bool amx_serves_bfloat16(int64_t depth);

// Write rounded @ weight.T to out, with the epilogue. rounded: [rows, depth], readable for AMX_ROWS more rows.
void bfloat16_product_by_amx(const BFloat16* rounded, int64_t rows, int64_t depth, const Weight& weight,
                             const Epilogue& epilogue, float* out);

}  // namespace transept
