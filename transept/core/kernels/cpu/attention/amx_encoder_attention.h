// Attention of a sequence over itself by AMX.
#pragma once

namespace transept {

struct Sequence;

// Whether this library has it.
bool amx_attends();

// As `attend_bfloat16` of encoder_attention.cpp: the same but for the order in which products are added up.
void attend_bfloat16_by_amx(const Sequence& of, float scale);

}  // namespace transept
