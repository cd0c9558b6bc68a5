// A packed weight, and what multiplies rows by it.
#pragma once

#include <cstdint>

#include "../elementwise/rows.h"

namespace transept {

enum Kind : int64_t { FLOAT32, FLOAT16, INT8, BFLOAT16, INT8_FOR_BYTES };  // as in panels.py

// Inputs of a panel in bfloat16, filled up with zeros: to pairs, where there is AMX to whole tiles.
inline int64_t whole_pairs(int64_t num_inputs) {
#if defined(TRANSEPT_EMULATE_AMX) || defined(__AMX_TILE__)
  return (num_inputs + 31) / 32 * 32;
#else
  return num_inputs + num_inputs % 2;
#endif
}

// A weight [out, in], packed: panels of PANEL outputs, the last one filled up with zeros. The same fields in panels.py.
struct Weight {
  // float32, float16: [panels, in, PANEL]; int8, bfloat16: [panels, pairs, PANEL, 2], pairs of inputs side by side, of
  // bfloat16 as many as whole_pairs says;
  // int8 for rows in int8: the number and 128, without a sign, [panels, quads, PANEL, 4]
  const void* values;
  const float* scales;  // int8: of one step of an output's weights, [panels * PANEL]
  int64_t num_outputs;
  int64_t num_inputs;
  Kind kind;
};

// What is done to a product's outputs: a bias is added, null for none, and an activation applied.
struct Epilogue {
  const float* bias;
  bool activates = false;
  Activation activation = GELU;
};

// Write x @ weight.T to out, with the epilogue. x: [rows, in], out: [rows, out], neither with gaps. What comes out of a row
// is the same to the last bit whatever rows are beside it.
void product(const float* x, int64_t rows, const Weight& weight, const Epilogue& epilogue, float* out);

// The same by AMX, for hundreds of rows: for weights in float16 of a multiple of 32 inputs, on processors that have it.
void float_product_by_amx(const float* x, int64_t rows, const Weight& weight, const Epilogue& epilogue, float* out);

}  // namespace transept
