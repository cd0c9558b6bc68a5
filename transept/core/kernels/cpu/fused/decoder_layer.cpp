// Whole decoder layers in one call, for a step in which every sequence has one token. The arithmetic of such a step takes
// microseconds; calling each norm, product and sum from Python would take as long again.
#include <algorithm>

#include "../attention/paged_attention.h"
#include "../elementwise/rows.h"
#include "../export.h"
#include "../scratch.h"
#include "../isa.h"
#include "linear.h"

namespace transept {

struct Norm {
  const float* weight;
  const float* bias;  // null for an RMS norm
};

struct DecoderLayer {
  Norm self_norm;
  Linear qkv;  // queries, keys and values of self-attention
  Linear self_out;
  Norm cross_norm;
  Linear query;  // of cross-attention
  Linear cross_out;
  Norm ffn_norm;
  Linear fc1;
  Linear gate;  // multiplied with the activated fc1; its weight is null for none
  Linear fc2;
  float self_scale;
  float cross_scale;
  float epsilon;
  int32_t pre_norm;  // x + f(norm(x)), else norm(x + f(x))
  int64_t activation;
};

// The norm after the last layer.
struct LastNorm {
  Norm norm;
  float epsilon;
};

// The part of a step that all layers share. The same fields as in decoder_layer.py.
struct DecodeStep {
  const int64_t* slots;  // [rows], where each row's key and value are written
  PagedWork self_keys;
  PagedWork cross_keys;
  DistanceBias bias;  // of self-attention
  AdapterRows adapters;
};

namespace {

void project(const float* x, int64_t rows, const Linear& linear, const AdapterRows& adapters, float* out) {
  product(x, rows, *linear.weight, {linear.bias}, out);
  add_low_rank(x, linear.weight->num_inputs, linear.adapters, adapters, 0, linear.weight->num_outputs, out);
}

// A layer that is applied in place to the rows of a step, x: [rows, hidden].
class Layer {
 public:
  Layer(float* x, int64_t rows, const DecoderLayer& layer, const AdapterRows& adapters)
      : x_(x), rows_(rows), layer_(layer), adapters_(adapters) {
    hidden_ = layer.fc2.weight->num_outputs;
    const int64_t attended = layer.query.weight->num_outputs, inner = layer.fc1.weight->num_outputs;
    const int64_t qkv = layer.qkv.weight->num_outputs, gate = layer.gate.weight ? inner : 0;
    float* room = scratch<Use::LAYER, float>(rows * (2 * hidden_ + 2 * attended + std::max(qkv, inner + gate)));
    normed_ = room;
    out_ = normed_ + rows * hidden_;
    query_ = out_ + rows * hidden_;
    attended_ = query_ + rows * attended;
    wide_ = attended_ + rows * attended;
  }

  void attend_to_itself(const DecodeStep& step, const KVCache& cache) {
    const float* input = begin(layer_.self_norm);
    project(input, rows_, layer_.qkv, adapters_, wide_);
    const int64_t query_size = layer_.query.weight->num_outputs, key_size = cache.kv_heads * cache.dim;
    for (int64_t row = 0; row < rows_; row++) {
      const float* from = wide_ + row * (query_size + 2 * key_size);
      std::copy(from, from + query_size, query_ + row * query_size);
      for (int64_t part = 0; part < 2; part++) {  // keys, values
        const float* numbers = from + query_size + part * key_size;
        const int64_t place = (part * cache.slots + step.slots[row]) * key_size;
        if (cache.is_half) {
          copy_row(numbers, key_size, static_cast<Half*>(cache.data) + place);
        } else {
          copy_row(numbers, key_size, static_cast<float*>(cache.data) + place);
        }
      }
    }
    attend_paged(query_, query_size / cache.dim, cache, step.self_keys, layer_.self_scale, step.bias, attended_);
    project(attended_, rows_, layer_.self_out, adapters_, out_);
    end(layer_.self_norm);
  }

  void attend_to_encoder(const DecodeStep& step, const KVCache& cache) {
    project(begin(layer_.cross_norm), rows_, layer_.query, adapters_, query_);
    const int64_t heads = layer_.query.weight->num_outputs / cache.dim;
    attend_paged(query_, heads, cache, step.cross_keys, layer_.cross_scale, DistanceBias{nullptr, 0}, attended_);
    project(attended_, rows_, layer_.cross_out, adapters_, out_);
    end(layer_.cross_norm);
  }

  void feed_forward() {
    const int64_t inner = layer_.fc1.weight->num_outputs;
    const float* input = begin(layer_.ffn_norm);
    const auto activation = static_cast<Activation>(layer_.activation);
    if (updates_any(layer_.fc1.adapters, adapters_)) {
      project(input, rows_, layer_.fc1, adapters_, wide_);
      activate(wide_, rows_, inner, nullptr, activation);
    } else {
      product(input, rows_, *layer_.fc1.weight, {layer_.fc1.bias, true, activation}, wide_);
    }
    if (layer_.gate.weight) {
      float* gate = wide_ + rows_ * inner;
      project(input, rows_, layer_.gate, adapters_, gate);
      for (int64_t i = 0; i < rows_ * inner; i++) wide_[i] *= gate[i];
    }
    project(wide_, rows_, layer_.fc2, adapters_, out_);
    end(layer_.ffn_norm);
  }

 private:
  // Return the input of a sublayer, [rows, hidden].
  const float* begin(const Norm& norm) {
    if (!layer_.pre_norm) return x_;
    normalize(x_, rows_, hidden_, norm.weight, norm.bias, layer_.epsilon, normed_);
    return normed_;
  }

  // Add the output of a sublayer, out_, to x.
  void end(const Norm& norm) {
    for (int64_t i = 0; i < rows_ * hidden_; i++) x_[i] += out_[i];
    if (!layer_.pre_norm) normalize(x_, rows_, hidden_, norm.weight, norm.bias, layer_.epsilon, x_);
  }

  float* x_;
  int64_t rows_, hidden_;
  const DecoderLayer& layer_;
  const AdapterRows& adapters_;
  float *normed_, *out_, *query_, *attended_, *wide_;
};

// Return the first row whose slot one of the caches does not have, or -1. slots: [rows], caches: [count].
int64_t row_without_slot(const int64_t* slots, int64_t rows, int64_t count, const KVCache* const* caches) {
  int64_t fewest = count ? caches[0]->slots : 0;
  for (int64_t i = 0; i < count; i++) fewest = std::min(fewest, caches[i]->slots);
  for (int64_t row = 0; row < rows; row++) {
    if (slots[row] < 0 || slots[row] >= fewest) return row;
  }
  return -1;
}

}  // namespace
}  // namespace transept

// Apply `count` layers to x, [rows, hidden], then a norm unless that is null, and write the result to out, [rows, hidden].
// caches: one of each layer, which is read, and written at the step's slots. Returns -1, or a row whose slot a cache does not
// have; then nothing is written.
EXPORT int64_t transept_decoder_layers(const float* x, int64_t rows, int64_t hidden, const transept::DecodeStep* step,
                                       int64_t count, const transept::DecoderLayer* const* layers,
                                       const transept::KVCache* const* caches, const transept::LastNorm* last,
                                       float* out) {
  using namespace transept;
  return run_kernel([&]() -> int64_t {
    const int64_t row = row_without_slot(step->slots, rows, count, caches);
    if (row >= 0) return row;
    std::copy(x, x + rows * hidden, out);
    for (int64_t i = 0; i < count; i++) {
      Layer layer(out, rows, *layers[i], step->adapters);
      layer.attend_to_itself(*step, *caches[i]);
      layer.attend_to_encoder(*step, *caches[i]);
      layer.feed_forward();
    }
    if (last) normalize(out, rows, hidden, last->norm.weight, last->norm.bias, last->epsilon, out);
    return -1;
  });
}
