// Self-attention of an encoder's sequence for models in int8. Queries, keys, values and weights are rounded to 16 bits, so sums
// are integers of 32 bits. Each query and key has as many steps as a sum has room for (5792 either way if a head has 64
// numbers). Each number of a head's values has VALUE_STEPS for all tokens. A query's weights have as many steps as then have
// room, which is known after all keys.
#include <cmath>

#include "../export.h"
#include "../gemm/rounding.h"
#include "encoder_blocks.h"
#include "rounding_steps.h"

namespace transept {
namespace {

constexpr int VALUE_STEPS = 4095;

void pack_int16(const Sequence& of, float factor, int steps, int64_t block, int64_t first, int64_t stop,
                const Packed<int16_t>& to, const TokenSteps& scales) {
  const int64_t dim = of.dim, depth = of.depth();
  int16_t* row = scratch<Use::WEIGHTS, int16_t>(depth);
  for (int64_t head = 0; head < of.heads; head++) std::fill_n(scales.queries_of(of, head, block), PANEL, 0.0f);
  to.put_queries(of, block, to.queries, [&](int64_t token, int64_t head, int16_t* out) {
    const float step = round_row(of.query_of(token, head), dim, row, depth, steps);
    scales.queries_of(of, head, block)[token - first] = step * factor;
    write_column_of_pairs(row, depth, token - first, out);
  });
  for (int64_t token = first; token < stop; token++) {
    for (int64_t head = 0; head < of.kv_heads; head++) {
      scales.keys[head * of.tokens + token] =
          round_row(of.key_of(token, head), dim, to.keys + head * to.key_size + token * depth, depth, steps);
    }
  }
}

void attend_int16_block(const Sequence& of, const int16_t* queries, const float* query_steps, const int16_t* keys,
                        const float* key_steps, const int16_t* values, const float* value_steps,
                        const Biases& biases, int64_t head, int64_t block) {
  const int64_t dim = of.dim, depth = of.depth(), parts = (of.tokens + KEYS_AT_ONCE - 1) / KEYS_AT_ONCE;
  float* scores = scratch<Use::SCORES, float>(std::max(of.token_depth(), dim) * PANEL);  // and in the end the columns
  float* tops = scratch<Use::PIECE_TOPS, float>(parts * PANEL);  // relative to which a part's weights were computed
  int32_t* sums = scratch<Use::OUTPUTS, int32_t>(dim * PANEL);
  std::fill_n(sums, dim * PANEL, 0);
  Columns columns;
  for_keys(of, block, [&](int64_t key, int64_t count) {
    float* part = scores + key * PANEL;
    for_tiles_of(count, [&](int64_t first, auto rows) {
      integer_tile<rows, 1>(keys + (key + first) * depth, depth, depth, queries, key_steps + key + first, query_steps,
                            part + first * PANEL, PANEL);
    });
    biases.add(head, block, key, count, part);
    raise_tops_of_sums(part, count, columns.tops, columns.totals, nullptr, 0);
    column_exp2(part, count, columns.tops, columns.totals);
    std::copy_n(columns.tops, PANEL, tops + key / KEYS_AT_ONCE * PANEL);
  });
  std::fill(scores + of.tokens * PANEL, scores + of.token_depth() * PANEL, 0.0f);
  const float room = (float)(INT32_MAX / VALUE_STEPS - of.tokens);  // each weight may be rounded up
  float most[PANEL], totals[PANEL] = {};
  for (int i = 0; i < PANEL; i++) most[i] = std::min(32767.0f, room / columns.totals[i]);
  int16_t* weights = scratch<Use::WEIGHTS, int16_t>(KEYS_AT_ONCE * PANEL);
  for_keys(of, block, [&](int64_t key, int64_t count) {
    float factors[PANEL];
    column_factors(tops + key / KEYS_AT_ONCE * PANEL, columns.tops, most, factors);
    round_column_pairs(scores + key * PANEL, count + count % 2, factors, totals, weights);
    for_tiles_of(dim, [&](int64_t d, auto rows) {
      pair_tile<rows, 1, true>(values + key * dim + 2 * d, dim, count + count % 2, weights,
                               [&](int row, int vector, Ints more) INLINE_LAMBDA {
                                 int32_t* to = sums + (d + row) * PANEL + vector * LANES;
                                 more += load_as<Ints>(to);
                                 memcpy(to, &more, sizeof more);
                               });
    });
  });
  invert_totals(totals);
  float* columns_out = scores;
  for (int64_t d = 0; d < dim; d++) {
    for (int i = 0; i < PANEL; i++) columns_out[d * PANEL + i] = (float)sums[d * PANEL + i] * value_steps[d];
  }
  write_block(of, columns_out, totals, head, block);
}

void attend_int16(const Sequence& of, float scale) {
  const int64_t dim = of.dim;
  const int steps = (int)std::min(32767.0, std::floor(std::sqrt((double)(INT32_MAX / dim))));
  const Packed<int16_t> packed(of, of.depth(), of.token_depth());
  const Biases biases(of);
  const TokenSteps scales{scratch<Use::ROW_STEPS, float>(of.heads * of.blocks() * PANEL),
                     scratch<Use::KEY_SCALES, float>(of.kv_heads * of.tokens)};
  const ValueSteps value_steps(of, VALUE_STEPS);
  for_token_blocks(of, [&](int64_t block, int64_t first, int64_t stop) {
    pack_int16(of, scale * LOG2_E, steps, block, first, stop, packed, scales);
    value_steps.see(of, block, first, stop);
  });
  value_steps.find(of);
  for_token_blocks(of, [&](int64_t, int64_t first, int64_t stop) {
    for (int64_t token = first; token < stop; token += 2) {
      for (int64_t head = 0; head < of.kv_heads; head++) {
        interleave_rows(of.value_of(token, head), token + 1 < stop ? of.value_of(token + 1, head) : nullptr, dim,
                        packed.values + head * packed.value_size + token * dim,
                        [&](Floats a, Floats b, int64_t d) INLINE_LAMBDA {
                          const Floats factor = load(value_steps.factors_of(head) + d);
                          return round_to_pairs(a * factor, b * factor);
                        });
      }
    }
  });
  for_query_blocks(of, [&](int64_t head, int64_t kv, int64_t block) {
    attend_int16_block(of, packed.queries_of(of, head, block), scales.queries_of(of, head, block),
                       packed.keys + kv * packed.key_size, scales.keys + kv * of.tokens,
                       packed.values + kv * packed.value_size, value_steps.of(kv), biases, head,
                       block);
  });
}

}  // namespace
}  // namespace transept

EXPORT int64_t transept_attend_sequence_in_int16(const transept::Sequence* sequence, float scale) {
  return transept::run_kernel([&] { transept::attend_int16(*sequence, scale); });
}
