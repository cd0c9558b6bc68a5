// Products: which of them a weight is multiplied by.
#include "../export.h"
#include "amx.h"
#include "weight.h"

namespace transept {

void multiply_floats(const float* x, int64_t rows, const Weight& weight, const float* bias, float* out);  // float_gemm.cpp
void multiply_int8(const float* x, int64_t rows, const Weight& weight, const float* bias, float* out);    // int8_gemm.cpp

void multiply(const float* x, int64_t rows, const Weight& weight, const float* bias, float* out) {
  (weight.kind == INT8 ? multiply_int8 : multiply_floats)(x, rows, weight, bias, out);
}

}  // namespace transept

EXPORT void transept_multiply(const float* x, int64_t rows, const transept::Weight* weight, const float* bias,
                              float* out) {
  transept::multiply(x, rows, *weight, bias, out);
}

EXPORT int64_t transept_amx_multiplies_floats(int64_t num_inputs) { return transept::amx_multiplies_floats(num_inputs); }

EXPORT void transept_multiply_floats_by_amx(const float* x, int64_t rows, const transept::Weight* weight,
                                            const float* bias, float* out) {
  transept::multiply_floats_by_amx(x, rows, *weight, bias, out);
}
