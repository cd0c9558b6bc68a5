// Self-attention of an encoder's sequence by AMX.
#pragma once

namespace transept {

struct Sequence;

// True if this library has it.
bool amx_attends();

// Like `attend_bfloat16` of encoder_attention.cpp, but products are added up in another order.
void attend_bfloat16_by_amx(const Sequence& of, float scale);

}  // namespace transept
