// Self-attention of an encoder's sequence for models in int8 whose encoders read audio or images. Queries, keys, values and
// weights are rounded to 8 bits. Each query and key has its own step, each number of a head's values one for all tokens, and
// a query's weights of KEYS_AT_ONCE keys one by the largest of them. If the instructions multiply numbers with a sign by numbers
// without, QUAD_OFFSET is added to queries. If they multiply numbers with a sign, WEIGHT_OFFSET is subtracted from weights,
// which are positive. The offsets' shares of the sums are known beforehand.
#include "../export.h"
#include "../gemm/quad_tile.h"
#include "encoder_blocks.h"
#include "rounding_steps.h"

namespace transept {
namespace {

constexpr float WEIGHT_STEPS = 255;
constexpr int WEIGHT_OFFSET = 128 - QUAD_OFFSET;

// offsets: the sum of a key's products with the offset of the queries.
struct QuadSteps : TokenSteps {
  int32_t* offsets;  // [kv_heads, tokens]
};

typedef Packed<RowOfQuads, RowOfQuads, uint8_t> PackedQuads;

int64_t whole_quads(int64_t size) { return (size + 3) / 4 * 4; }

void pack_quads(const Sequence& of, float factor, int64_t block, int64_t first, int64_t stop, const PackedQuads& to,
                const QuadSteps& token_steps) {
  const int64_t dim = of.dim, depth = whole_quads(dim);
  int8_t* row = scratch<Use::WEIGHTS, int8_t>(depth);
  for (int64_t head = 0; head < of.heads; head++) std::fill_n(token_steps.queries_of(of, head, block), PANEL, 0.0f);
  to.put_queries(of, block, to.queries, [&](int64_t token, int64_t head, uint8_t* out) {
    const int64_t column = token - first;
    token_steps.queries_of(of, head, block)[column] =
        factor * round_row(of.query_of(token, head), dim, row, depth, QUAD_STEPS);
    for (int64_t d = 0; d < depth; d += 4) {
      for (int64_t i = 0; i < 4; i++) out[d * PANEL + 4 * column + i] = (uint8_t)(row[d + i] + QUAD_OFFSET);
    }
  });
  for (int64_t token = first; token < stop; token++) {
    for (int64_t head = 0; head < of.kv_heads; head++) {
      const int64_t at = head * of.tokens + token;
      token_steps.keys[at] = round_row_to_quads(
          of.key_of(token, head), dim, to.keys + head * to.key_size + token * depth, depth, token_steps.offsets[at]);
    }
  }
}

// Write the values of a head for four tokens to out, [dim, 4]; zeros for tokens beyond the last one.
void pack_values(const Sequence& of, int64_t token, int64_t head, const float* factors, RowOfQuads* out) {
  const int64_t dim = of.dim, count = std::min<int64_t>(4, of.tokens - token);
  int64_t d = 0;
  if (sizeof(RowOfQuads) == 1) {
    for (; d + LANES <= dim; d += LANES) {
      Ints quads = {};
      for (int64_t i = 0; i < count; i++) {
        const Floats shifted = load(of.value_of(token + i, head) + d) * load(factors + d) + broadcast(TO_INTEGER);
        quads |= (bits_as<Ints>(shifted) & 0xff) << (8 * (int)i);
      }
      memcpy(out + 4 * d, &quads, sizeof quads);
    }
  }
  for (; d < dim; d++) {
    for (int64_t i = 0; i < 4; i++) {
      const float shifted = i < count ? of.value_of(token + i, head)[d] * factors[d] + TO_INTEGER : TO_INTEGER;
      const int64_t place = sizeof(RowOfQuads) == 1 || i == 0 || i == 3 ? i : 3 - i;
      out[4 * d + place] = (RowOfQuads)(int8_t)bits_as<int32_t>(shifted);
    }
  }
}

// Compute the weights of COUNT keys, up to 4, relative to `top`, less WEIGHT_OFFSET, as [PANEL, 4]. scores: [COUNT, PANEL].
template <int COUNT>
INLINE void round_quads(const float* scores, const Floats* top, Floats* total, uint8_t* out) {
  UNROLL for (int half = 0; half < 2; half++) {
    Ints quads = {};
    UNROLL for (int i = 0; i < COUNT; i++) {
      const Floats weight = exp2_for_bfloat16(load(scores + i * PANEL + half * LANES) - top[half]);
      const Floats shifted = weight * broadcast(WEIGHT_STEPS) + broadcast(TO_INTEGER);
      total[half] += shifted - broadcast(TO_INTEGER);
      quads |= (bits_as<Ints>(shifted) & 0xff) << (8 * i);
    }
    if (WEIGHT_OFFSET) quads ^= (int32_t)0x80808080;
    memcpy(out + half * 4 * LANES, &quads, sizeof quads);
  }
}

// The share of WEIGHT_OFFSET in the sums of each part of KEYS_AT_ONCE keys.
class ValueOffsets {
 public:
  explicit ValueOffsets(const Sequence& of) : parts_((of.tokens + KEYS_AT_ONCE - 1) / KEYS_AT_ONCE), dim_(of.dim) {
    if (WEIGHT_OFFSET) offsets_ = scratch<Use::VALUE_OFFSETS, int32_t>(of.kv_heads * parts_ * dim_);
  }

  // Compute the offsets of packed values.
  void find(const Sequence& of, const PackedQuads& packed) const {
    if (!WEIGHT_OFFSET) return;
    parallel_for(of.kv_heads * parts_, [&](int64_t index) {
      const int64_t first = index % parts_ * KEYS_AT_ONCE, stop = std::min(first + KEYS_AT_ONCE, whole_quads(of.tokens));
      const RowOfQuads* quads = packed.values + index / parts_ * packed.value_size;
      int32_t* offsets = offsets_ + index * dim_;
      std::fill_n(offsets, dim_, 0);
      for (int64_t token = first; token < stop; token += 4) {
        for (int64_t i = 0; i < 4 * dim_; i++) offsets[i / 4] += WEIGHT_OFFSET * quads[token * dim_ + i];
      }
    });
  }

  // Return the offset of number d of a head's values for the keys from `key` on.
  INLINE int32_t of(int64_t kv_head, int64_t key, int64_t d) const {
    return WEIGHT_OFFSET ? offsets_[(kv_head * parts_ + key / KEYS_AT_ONCE) * dim_ + d] : 0;
  }

 private:
  int64_t parts_, dim_;
  int32_t* offsets_ = nullptr;  // [kv_heads, parts, dim]
};

// Compute weights from scores, [rows, PANEL], as [rows / 4, PANEL, 4], in WEIGHT_STEPS of the largest of a column. As tops
// rise, rescale totals and sums, see raise_tops_of_sums. factors: [PANEL], the weight of these columns' own tops.
INLINE void round_weights(const float* scores, int64_t rows, float* tops, float* totals, float* sums, int64_t rows_of_sums,
                          float* factors, uint8_t* out) {
  float own_tops[PANEL];
  std::fill_n(own_tops, PANEL, NO_TOP);
  raise_tops(scores, rows, own_tops);
  raise_tops_of_sums(own_tops, 1, tops, totals, sums, rows_of_sums);
  Floats top[2], total[2] = {};
  UNROLL for (int half = 0; half < 2; half++) top[half] = load(own_tops + half * LANES);
  for (int64_t row = 0; row < rows; row += 4) {
    with_constant<4>(std::min<int64_t>(4, rows - row), [&](auto count) INLINE_LAMBDA {
      round_quads<count>(scores + row * PANEL, top, total, out + row * PANEL);
    });
  }
  UNROLL for (int half = 0; half < 2; half++) {
    const Floats factor = exp2(top[half] - load(tops + half * LANES));
    store(factors + half * LANES, factor);
    store(totals + half * LANES, load(totals + half * LANES) + total[half] * factor);
  }
}

void attend_quads(const Sequence& of, const PackedQuads& packed, const QuadSteps& token_steps, const ValueSteps& value_steps,
                  const ValueOffsets& value_offsets, const Biases& biases, int64_t head, int64_t kv, int64_t block) {
  const int64_t dim = of.dim, depth = whole_quads(dim);
  const uint8_t* queries = packed.queries_of(of, head, block);
  const RowOfQuads* keys = packed.keys + kv * packed.key_size;
  const RowOfQuads* values = packed.values + kv * packed.value_size;
  const float *query_steps = token_steps.queries_of(of, head, block), *key_steps = token_steps.keys + kv * of.tokens;
  const int32_t* offsets = token_steps.offsets + kv * of.tokens;
  float* scores = scratch<Use::SCORES, float>(KEYS_AT_ONCE * PANEL);
  uint8_t* weights = scratch<Use::WEIGHTS, uint8_t>(KEYS_AT_ONCE * PANEL);
  float* sums = scratch<Use::OUTPUTS, float>(dim * PANEL);
  std::fill_n(sums, dim * PANEL, 0.0f);
  Columns columns;
  for_keys(of, block, [&](int64_t key, int64_t count) {
    for_tiles_of(count, [&](int64_t first, auto rows) {
      quad_tile<rows, 1>(keys + (key + first) * depth, depth, depth, queries, [&](int row, int vector, Ints sum) INLINE_LAMBDA {
        const int64_t at = key + first + row;
        const Floats score = to_floats(sum - broadcast(offsets[at])) * broadcast(key_steps[at]);
        store(scores + (first + row) * PANEL + vector * LANES, score * load(query_steps + vector * LANES));
      });
    });
    biases.add(head, block, key, count, scores);
    float factors[PANEL];
    round_weights(scores, count, columns.tops, columns.totals, sums, dim, factors, weights);
    for_tiles_of(dim, [&](int64_t d, auto rows) {
      quad_tile<rows, 1, true>(values + key * dim + 4 * d, dim, whole_quads(count), weights,
                               [&](int row, int vector, Ints sum) INLINE_LAMBDA {
                                 float* to = sums + (d + row) * PANEL + vector * LANES;
                                 const Floats total = to_floats(sum + broadcast(value_offsets.of(kv, key, d + row)));
                                 store(to, load(to) + total * load(factors + vector * LANES));
                               });
    });
  });
  invert_totals(columns.totals);
  const float* steps = value_steps.of(kv);
  for (int64_t d = 0; d < dim; d++) {
    for (int i = 0; i < PANEL; i++) sums[d * PANEL + i] *= steps[d];
  }
  write_block(of, sums, columns.totals, head, block);
}

void attend_int8(const Sequence& of, float scale) {
  const int64_t tokens = whole_quads(of.tokens), kv_tokens = of.kv_heads * of.tokens;
  const PackedQuads packed(of, whole_quads(of.dim), tokens);
  const Biases biases(of);
  const QuadSteps token_steps{
      {scratch<Use::ROW_STEPS, float>(of.heads * of.blocks() * PANEL), scratch<Use::KEY_SCALES, float>(kv_tokens)},
      scratch<Use::ROW_OFFSETS, int32_t>(kv_tokens)};
  const ValueSteps value_steps(of, QUAD_STEPS);
  for_token_blocks(of, [&](int64_t block, int64_t first, int64_t stop) {
    pack_quads(of, scale * LOG2_E, block, first, stop, packed, token_steps);
    value_steps.see(of, block, first, stop);
  });
  value_steps.find(of);
  for_token_blocks(of, [&](int64_t, int64_t first, int64_t stop) {
    for (int64_t token = first; token < stop; token += 4) {
      for (int64_t head = 0; head < of.kv_heads; head++) {
        pack_values(of, token, head, value_steps.factors_of(head),
                    packed.values + head * packed.value_size + token * of.dim);
      }
    }
  });
  const ValueOffsets value_offsets(of);
  value_offsets.find(of, packed);
  for_query_blocks(of, [&](int64_t head, int64_t kv, int64_t block) {
    attend_quads(of, packed, token_steps, value_steps, value_offsets, biases, head, kv, block);
  });
}

}  // namespace
}  // namespace transept

EXPORT int64_t transept_attend_sequence_in_int8(const transept::Sequence* sequence, float scale) {
  return transept::run_kernel([&] { transept::attend_int8(*sequence, scale); });
}
