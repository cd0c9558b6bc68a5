// The recurrent layer of the voice-activity network: a long short-term memory (Hochreiter & Schmidhuber 1997).
#include <algorithm>

#include "../elementwise/math.h"
#include "../export.h"
#include "../scratch.h"

// Run the layer over some frames. states: [frames, size], the hidden state after each frame. inputs: [frames, 4 * size], the
// part of the gates' sums that comes from the frames, in PyTorch's order: input, forget, cell, output. recurrent: [size,
// 4 * size], the weights of the hidden state. hidden, memory: [size], before the first frame; after the call those after the
// last one.
EXPORT int64_t transept_recur(const float* inputs, int64_t frames, int64_t size, const float* recurrent, float* hidden,
                              float* memory, float* states) {
  using namespace transept;
  return run_kernel([&] {
    float* gates = scratch<Use::LAYER, float>(4 * size);
    for (int64_t frame = 0; frame < frames; frame++) {
      std::copy(inputs + frame * 4 * size, inputs + (frame + 1) * 4 * size, gates);
      for (int64_t i = 0; i < size; i++) {
        const float share = hidden[i];
        for (int64_t gate = 0; gate < 4 * size; gate++) gates[gate] += share * recurrent[i * 4 * size + gate];
      }
      for_vectors(gates, 2 * size, [](Floats sums, int64_t) { return sigmoid(sums); });
      for_vectors(gates + 2 * size, size, [](Floats sums, int64_t) { return tanh(sums); });
      for_vectors(gates + 3 * size, size, [](Floats sums, int64_t) { return sigmoid(sums); });
      for (int64_t i = 0; i < size; i++) memory[i] = memory[i] * gates[size + i] + gates[i] * gates[2 * size + i];
      std::copy(memory, memory + size, hidden);
      for_vectors(hidden, size, [](Floats kept, int64_t) { return tanh(kept); });
      for (int64_t i = 0; i < size; i++) hidden[i] *= gates[3 * size + i];
      std::copy(hidden, hidden + size, states + frame * size);
    }
  });
}
