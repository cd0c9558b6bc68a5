// Products by AMX, the matrix instructions of newer Intel processors: 16 rows by 16 outputs at a time.
#pragma once

#include <cstdint>

#include "../simd.h"
#include "quad_tile.h"
#include "weight.h"

namespace transept {

// Whether this library, on this processor and system, has products by AMX for weights in int8 of so many inputs.
bool amx_serves_int8(int64_t depth);

// Write (rounded * steps) @ weight.T to out, with the epilogue; the sums are the integers of integer_tile.h.
// rounded: int16 [rows, depth], steps: [rows].
void rounded_product_by_amx(const int16_t* rounded, int64_t rows, int64_t depth, const float* steps,
                             const Weight& weight, const Epilogue& epilogue, float* out);

// The same for weights in int8 of rows in int8, and for those in bfloat16, of any number of rows: the latter's sums are not
// to the last bit those of pair_tile.h.
bool amx_serves_bytes(int64_t depth);
bool amx_serves_bfloat16(int64_t depth);

// Write x @ weight.T to out, with the epilogue, as byte_gemm.cpp and bfloat16_gemm.cpp do.
void byte_product_by_amx(const float* x, int64_t rows, const Weight& weight, const Epilogue& epilogue, float* out);
void bfloat16_product_by_amx(const float* x, int64_t rows, const Weight& weight, const Epilogue& epilogue, float* out);

}  // namespace transept
