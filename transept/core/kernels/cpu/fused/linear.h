// A linear layer.
#pragma once

#include "../gemm/low_rank.h"
#include "../gemm/weight.h"

namespace transept {

// A packed weight [out, in], a bias [out], null for none, and the updates of adapters, null for none. The same fields as in
// decoder_layer.py.
struct Linear {
  const Weight* weight;
  const float* bias;
  const LowRankSlot* adapters;
};

}  // namespace transept
