// Products: which of them a weight is multiplied by.
#include "../export.h"
#include "amx.h"
#include "weight.h"

namespace transept {

void float_product(const float* x, int64_t rows, const Weight& weight, const float* bias, float* out);  // float_gemm.cpp
void int8_product(const float* x, int64_t rows, const Weight& weight, const float* bias, float* out);    // int8_gemm.cpp
void bfloat16_product(const float* x, int64_t rows, const Weight& weight, const float* bias,
                      float* out);  // bfloat16_gemm.cpp

void byte_product(const float* x, int64_t rows, const Weight& weight, const float* bias, float* out);  // byte_gemm.cpp

void product(const float* x, int64_t rows, const Weight& weight, const float* bias, float* out) {
  switch (weight.kind) {
    case INT8: return int8_product(x, rows, weight, bias, out);
    case BFLOAT16: return bfloat16_product(x, rows, weight, bias, out);
    case INT8_FOR_BYTES: return byte_product(x, rows, weight, bias, out);
    default: return float_product(x, rows, weight, bias, out);
  }
}

}  // namespace transept

EXPORT void transept_product(const float* x, int64_t rows, const transept::Weight* weight, const float* bias,
                              float* out) {
  transept::product(x, rows, *weight, bias, out);
}

EXPORT void transept_float_product_by_amx(const float* x, int64_t rows, const transept::Weight* weight,
                                            const float* bias, float* out) {
  transept::float_product_by_amx(x, rows, *weight, bias, out);
}
