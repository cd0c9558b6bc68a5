// What is done to rows of numbers between products: activations, norms, sums.
#pragma once

#include <cstdint>

namespace transept {

enum Activation : int64_t { GELU, GELU_TANH, RELU, SILU, TANH };  // as in kernels/activations.py

// Apply an activation to x + bias in place. x: [rows, columns], bias: [columns] or null.
void activate(float* x, int64_t rows, int64_t columns, const float* bias, Activation activation);

// The same by this thread alone, of columns `first` to `stop` - 1.
void activate_part(float* x, int64_t rows, int64_t columns, int64_t first, int64_t stop, const float* bias,
                   Activation activation);

// Layer norm of each row of [rows, columns] into out, which may be x; with bias null RMS norm, which subtracts no mean.
void normalize(const float* x, int64_t rows, int64_t columns, const float* weight, const float* bias, float epsilon,
               float* out);

}  // namespace transept
