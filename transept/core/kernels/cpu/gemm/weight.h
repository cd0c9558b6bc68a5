// A packed weight, and the functions that multiply rows by it.
#pragma once

#include <cstdint>

#include "../elementwise/rows.h"

namespace transept {

enum Kind : int64_t { FLOAT32, FLOAT16, INT8, BFLOAT16, INT8_FOR_BYTES };  // as in panels.py

// A packed weight [out, in]: panels of PANEL outputs, the last one padded with zeros. The same fields as in panels.py.
struct Weight {
  // FLOAT32, FLOAT16:  [panels, in, PANEL]
  // INT8:              [panels, pairs of inputs, PANEL, 2]
  // BFLOAT16:          [panels, groups of inputs, PANEL, BFLOAT16_GROUP], see groups.h
  // INT8_FOR_BYTES:    [panels, groups of inputs, PANEL, BYTE_GROUP], each number plus QUAD_OFFSET
  const void* values;
  const float* scales;  // int8: the step of each output's weights, [panels * PANEL]
  int64_t num_outputs;
  int64_t num_inputs;
  Kind kind;
};

// The end of a product: a bias [out] is added, null for none, and an activation is applied.
struct Epilogue {
  const float* bias;
  bool activates = false;
  Activation activation = GELU;
};

// out = x @ weight.T, with the epilogue. x: [rows, in], out: [rows, out], both contiguous. Each row is batch-invariant, bit
// for bit.
void product(const float* x, int64_t rows, const Weight& weight, const Epilogue& epilogue, float* out);

// The same by AMX, for hundreds of rows and weights in float16 with a multiple of 32 inputs. Needs the capability `tiles`.
void float_product_by_amx(const float* x, int64_t rows, const Weight& weight, const Epilogue& epilogue, float* out);

}  // namespace transept
