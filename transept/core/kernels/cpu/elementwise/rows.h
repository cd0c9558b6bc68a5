// Row-wise operations between products: activations and norms.
#pragma once

#include <cstdint>

namespace transept {

enum Activation : int64_t { GELU, GELU_TANH, RELU, SILU, TANH };  // as in kernels/activations.py

// x = activation(x + bias), in place. x: [rows, columns], bias: [columns] or null.
void activate(float* x, int64_t rows, int64_t columns, const float* bias, Activation activation);

// The same for columns `first` to `stop` - 1, in this thread alone.
void activate_part(float* x, int64_t rows, int64_t columns, int64_t first, int64_t stop, const float* bias,
                   Activation activation);

// out = the layer norm of each row of x, [rows, columns], or if bias is null its RMS norm. out may be x.
void normalize(const float* x, int64_t rows, int64_t columns, const float* weight, const float* bias, float epsilon,
               float* out);

}  // namespace transept
