// exp, 2^x and the activations, of vectors. They are polynomials: calling the C library's exp for each number would take as
// long as the product before it. All are within 2e-7 of the exact value, relative to 1 or to the value.
#pragma once

#include "../isa.h"

namespace transept {

// e^x, clamped to x from -87 to 88 (Moshier's Cephes library, expf). NaN stays NaN.
INLINE Floats exp(Floats x) {
  x = select(x < broadcast(-87.0f), broadcast(-87.0f), x);
  x = select(x > broadcast(88.0f), broadcast(88.0f), x);
  const Floats shifted = x * broadcast(1.44269504088896341f) + broadcast(TO_INTEGER);
  const Floats power = shifted - broadcast(TO_INTEGER);
  Floats rest = x - power * broadcast(0.693359375f);  // ln 2, subtracted in two steps
  rest = rest + power * broadcast(2.12194440e-4f);
  Floats value = broadcast(1.9875691500e-4f);
  value = value * rest + broadcast(1.3981999507e-3f);
  value = value * rest + broadcast(8.3334519073e-3f);
  value = value * rest + broadcast(4.1665795894e-2f);
  value = value * rest + broadcast(1.6666665459e-1f);
  value = value * rest + broadcast(5.0000001201e-1f);
  value = value * rest * rest + rest + broadcast(1.0f);
  return value * bits_as<Floats>((bits_as<Ints>(shifted) << 23) + (127 << 23));
}

// 2^x for x up to 127; 0 below -125. NaN stays NaN. The polynomial has the least error from -0.5 to 0.5.
INLINE Floats exp2(Floats x) {
  Floats nearest;
  const Floats rest = less_nearest(x, nearest);
  Floats value = broadcast(1.326472731307149e-3f);
  value = value * rest + broadcast(9.671512991189957e-3f);
  value = value * rest + broadcast(5.550733581185341e-2f);
  value = value * rest + broadcast(2.402224242687225e-1f);
  value = value * rest + broadcast(6.931470036506653e-1f);
  value = value * rest + broadcast(1.0f);
  return times_power_of_nearest(value, x, nearest);
}

// The same within 7.5e-5 of the value, for results that are rounded to bfloat16, whose steps are 26 times as large.
INLINE Floats exp2_for_bfloat16(Floats x) {
  const Floats rest = less_floor(x);
  Floats value = broadcast(0.07802452f);
  value = value * rest + broadcast(0.22606716f);
  value = value * rest + broadcast(0.69583354f);
  value = value * rest + broadcast(0.99992522f);
  return times_power_of_floor(value, x);
}

// The error function, by Abramowitz and Stegun's formula 7.1.26.
INLINE Floats erf(Floats x) {
  const Floats size = minimum(broadcast(9.0f), bits_as<Floats>(bits_as<Ints>(x) & 0x7fffffff));  // NaN stays NaN
  const Floats t = inverse(broadcast(1.0f) + broadcast(0.3275911f) * size);
  Floats value = broadcast(1.061405429f);
  value = value * t - broadcast(1.453152027f);
  value = value * t + broadcast(1.421413741f);
  value = value * t - broadcast(0.284496736f);
  value = value * t + broadcast(0.254829592f);
  value = broadcast(1.0f) - value * t * exp2(size * size * broadcast(-1.44269504088896341f));
  return bits_as<Floats>(bits_as<Ints>(value) | (bits_as<Ints>(x) & INT32_MIN));
}

INLINE Floats tanh(Floats x) {
  return broadcast(1.0f) - broadcast(2.0f) / (exp(broadcast(2.0f) * x) + broadcast(1.0f));
}

INLINE Floats sigmoid(Floats x) { return broadcast(1.0f) / (broadcast(1.0f) + exp(-x)); }

INLINE Floats gelu(Floats x) {
  return broadcast(0.5f) * x * (broadcast(1.0f) + erf(x * broadcast(0.7071067811865476f)));
}

INLINE Floats gelu_tanh(Floats x) {
  const Floats cubic = x + broadcast(0.044715f) * x * x * x;
  return broadcast(0.5f) * x * (broadcast(1.0f) + tanh(broadcast(0.7978845608028654f) * cubic));
}

INLINE Floats silu(Floats x) { return x * sigmoid(x); }

INLINE Floats relu(Floats x) { return select(x < Floats{}, Floats{}, x); }

// x = body(vector, first) for the vectors of `size` numbers at x. The last vector is padded with zeros.
template <class Body>
INLINE void for_vectors(float* x, int64_t size, const Body& body) {
  int64_t first = 0;
  for (; first + LANES <= size; first += LANES) store(x + first, body(load(x + first), first));
  if (first < size) {
    float rest[LANES] = {};
    memcpy(rest, x + first, (size - first) * sizeof(float));
    store(rest, body(load(rest), first));
    memcpy(x + first, rest, (size - first) * sizeof(float));
  }
}

// Apply a function of vectors to one number.
template <class Function>
INLINE float of_one(Function function, float x) {
  return function(broadcast(x))[0];
}

}  // namespace transept
