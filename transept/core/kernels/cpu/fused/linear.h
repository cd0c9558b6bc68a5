// A linear layer.
#pragma once

#include "../gemm/weight.h"

namespace transept {

// A packed weight [out, in] and a bias [out], null for none. The same fields as in decoder_layer.py.
struct Linear {
  const Weight* weight;
  const float* bias;
};

}  // namespace transept
