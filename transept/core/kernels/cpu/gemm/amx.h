// Products by AMX, the matrix instructions of newer Intel processors, which multiply 16 rows by 16 outputs at a time.
#pragma once

#include <cstdint>

#include "../isa.h"
#include "groups.h"
#include "quad_tile.h"
#include "weight.h"

namespace transept {

// True if this library has products by AMX for weights in int8 of `depth` inputs.
bool amx_serves_int8(int64_t depth);

// out = (rounded * steps) @ weight.T, with the epilogue. The sums are the same integers as in pair_tile.h.
// rounded: int16 [rows, depth], steps: [rows], out: [rows, out].
void rounded_product_by_amx(const int16_t* rounded, int64_t rows, int64_t depth, const float* steps,
                             const Weight& weight, const Epilogue& epilogue, float* out);

// True if there are products by AMX of rows in int8 and in bfloat16, for any number of rows. Sums of bfloat16 differ in the
// last bits from those of pair_tile.h.
bool amx_serves_bytes(int64_t depth);
bool amx_serves_bfloat16(int64_t depth);

// out = x @ weight.T, with the epilogue, like byte_gemm.cpp and bfloat16_gemm.cpp. x: [rows, in], out: [rows, out].
void byte_product_by_amx(const float* x, int64_t rows, const Weight& weight, const Epilogue& epilogue, float* out);
void bfloat16_product_by_amx(const float* x, int64_t rows, const Weight& weight, const Epilogue& epilogue, float* out);

}  // namespace transept
