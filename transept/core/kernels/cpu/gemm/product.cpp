// Chooses a product by the kind of the weight.
#include "../export.h"
#include "amx.h"
#include "weight.h"

namespace transept {

// Defined in float_gemm.cpp, int8_gemm.cpp, bfloat16_gemm.cpp and byte_gemm.cpp.
void float_product(const float* x, int64_t rows, const Weight& weight, const Epilogue& epilogue, float* out);
void int8_product(const float* x, int64_t rows, const Weight& weight, const Epilogue& epilogue, float* out);
void bfloat16_product(const float* x, int64_t rows, const Weight& weight, const Epilogue& epilogue, float* out);
void byte_product(const float* x, int64_t rows, const Weight& weight, const Epilogue& epilogue, float* out);

void product(const float* x, int64_t rows, const Weight& weight, const Epilogue& epilogue, float* out) {
  switch (weight.kind) {
    case INT8: return int8_product(x, rows, weight, epilogue, out);
    case BFLOAT16: return bfloat16_product(x, rows, weight, epilogue, out);
    case INT8_FOR_BYTES: return byte_product(x, rows, weight, epilogue, out);
    default: return float_product(x, rows, weight, epilogue, out);
  }
}

namespace {

// activation: negative for none.
Epilogue epilogue_of(const float* bias, int64_t activation) {
  return {bias, activation >= 0, static_cast<Activation>(activation)};
}

}  // namespace
}  // namespace transept

EXPORT int64_t transept_product(const float* x, int64_t rows, const transept::Weight* weight, const float* bias,
                                int64_t activation, float* out) {
  using namespace transept;
  return run_kernel([&] { product(x, rows, *weight, epilogue_of(bias, activation), out); });
}

EXPORT int64_t transept_float_product_by_amx(const float* x, int64_t rows, const transept::Weight* weight, const float* bias,
                                             int64_t activation, float* out) {
  using namespace transept;
  return run_kernel([&] { float_product_by_amx(x, rows, *weight, epilogue_of(bias, activation), out); });
}
