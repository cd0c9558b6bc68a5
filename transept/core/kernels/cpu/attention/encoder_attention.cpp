// Self-attention of an encoder's sequence: in float32, and with all numbers rounded to bfloat16.
#include "../export.h"
#include "../gemm/rounding.h"
#include "amx_encoder_attention.h"
#include "encoder_blocks.h"
#include "position_keys.h"

namespace transept {
namespace {

// In float32.

// Write (query + bias) * factor to a column of out, [dim, PANEL]. bias: of all heads, or null.
INLINE void write_column(const Sequence& of, const float* bias, float factor, int64_t token, int64_t head, float* out) {
  const float* query = of.query_of(token, head);
  for (int64_t d = 0; d < of.dim; d++) {
    out[d * PANEL + token % PANEL] = (bias ? query[d] + bias[head * of.dim + d] : query[d]) * factor;
  }
}

void pack_floats(const Sequence& of, float factor, int64_t block, int64_t first, int64_t stop, const Packed<float>& to,
                 const PositionKeys<float>& positions) {
  const int64_t dim = of.dim, whole = dim / TILE_ROWS * TILE_ROWS;
  to.put_queries(of, block, to.queries, [&](int64_t token, int64_t head, float* out) {
    write_column(of, of.content_bias, factor, token, head, out);
  });
  if (positions) {
    to.put_queries(of, block, positions.queries, [&](int64_t token, int64_t head, float* out) {
      write_column(of, of.position_bias, factor, token, head, out);
    });
  }
  for (int64_t token = first; token < stop; token++) {
    for (int64_t head = 0; head < of.kv_heads; head++) {
      std::copy_n(of.key_of(token, head), dim, to.keys + head * to.key_size + token * dim);
      const float* value = of.value_of(token, head);
      float* values = to.values + head * to.value_size;
      for (int64_t part = 0; part < whole; part += TILE_ROWS) {
        std::copy_n(value + part, TILE_ROWS, values + part * of.tokens + token * TILE_ROWS);
      }
      std::copy_n(value + whole, dim - whole, values + whole * of.tokens + token * (dim - whole));
    }
  }
}

void attend_block(const Sequence& of, const float* queries, const float* keys, const float* values, const Biases& biases,
                  const PositionKeys<float>& positions, int64_t head, int64_t block) {
  const int64_t tokens = of.tokens, dim = of.dim;
  float* scores = scratch<Use::SCORES, float>(KEYS_AT_ONCE * PANEL);
  float* sums = scratch<Use::OUTPUTS, float>(dim * PANEL);
  std::fill_n(sums, dim * PANEL, 0.0f);
  Columns columns;
  for_keys(of, block, [&](int64_t key, int64_t count) {
    for_tiles_of(count, [&](int64_t first, auto rows) {
      float_tile<rows, 1, false>(keys + (key + first) * dim, dim, queries, 0, dim, scores + first * PANEL, PANEL, true);
    });
    biases.add(head, block, key, count, scores);
    positions.add(of, head, block, key, count, scores, [&](auto rows, const float* row, const float* columns, float* out) {
      float_tile<rows, 1, false>(row, dim, columns, 0, dim, out, PANEL, true);
    });
    raise_tops_of_sums(scores, count, columns.tops, columns.totals, sums, dim);
    column_exp2(scores, count, columns.tops, columns.totals);
    for_tiles_of(dim, [&](int64_t d, auto rows) {
      float_tile<rows, 1, true>(values + d * tokens + key * rows, rows, scores, 0, count, sums + d * PANEL, PANEL, false);
    });
  });
  invert_totals(columns.totals);
  write_block(of, sums, columns.totals, head, block);
}

void attend(const Sequence& of, float scale) {
  const Packed<float> packed(of, of.dim, of.tokens);
  const Biases biases(of);
  PositionKeys<float> positions(of, of.dim);
  positions.rows = of.position_keys, positions.head_size = of.position_stride;
  for_token_blocks(of, [&](int64_t block, int64_t first, int64_t stop) {
    pack_floats(of, scale * LOG2_E, block, first, stop, packed, positions);
  });
  for_query_blocks(of, [&](int64_t head, int64_t kv, int64_t block) {
    attend_block(of, packed.queries_of(of, head, block), packed.keys + kv * packed.key_size,
                 packed.values + kv * packed.value_size, biases, positions, head, block);
  });
}

// In bfloat16.

// Write (query + bias) * factor to a column of out, [depth / 2, PANEL, 2]. bias: of all heads, or null.
INLINE void write_rounded_column(const Sequence& of, const float* bias, float factor, int64_t token, int64_t head,
                                 BFloat16* out) {
  const int64_t dim = of.dim, depth = of.depth();
  float* scaled = scratch<Use::OUTPUTS, float>(dim);
  BFloat16* row = scratch<Use::WEIGHTS, BFloat16>(depth);
  const float* query = of.query_of(token, head);
  for (int64_t d = 0; d < dim; d++) scaled[d] = (bias ? query[d] + bias[head * dim + d] : query[d]) * factor;
  round_row_to_bfloat16(scaled, dim, row, depth);
  write_column_of_pairs(row, depth, token % PANEL, out);
}

// Round the keys of distances to rows of depth().
const BFloat16* round_position_keys(const Sequence& of) {
  if (!of.position_keys) return nullptr;
  const int64_t rows = 2 * of.tokens - 1, heads = of.position_stride ? of.heads : 1, depth = of.depth();
  BFloat16* rounded = scratch<Use::POSITION_KEYS, BFloat16>(heads * rows * depth);
  parallel_for(heads * of.blocks(), [&](int64_t piece) {
    const int64_t head = piece / of.blocks(), first = piece % of.blocks() * 2 * PANEL;
    for (int64_t row = first; row < std::min<int64_t>(first + 2 * PANEL, rows); row++) {
      round_row_to_bfloat16(of.position_keys + head * of.position_stride + row * of.dim, of.dim,
                            rounded + (head * rows + row) * depth, depth);
    }
  });
  return rounded;
}

void pack_bfloat16(const Sequence& of, float factor, int64_t block, int64_t first, int64_t stop,
                   const Packed<BFloat16>& to, const PositionKeys<BFloat16>& positions) {
  const int64_t dim = of.dim, depth = of.depth();
  to.put_queries(of, block, to.queries, [&](int64_t token, int64_t head, BFloat16* out) {
    write_rounded_column(of, of.content_bias, factor, token, head, out);
  });
  if (positions) {
    to.put_queries(of, block, positions.queries, [&](int64_t token, int64_t head, BFloat16* out) {
      write_rounded_column(of, of.position_bias, factor, token, head, out);
    });
  }
  for (int64_t token = first; token < stop; token += 2) {
    for (int64_t head = 0; head < of.kv_heads; head++) {
      BFloat16* keys = to.keys + head * to.key_size + token * depth;
      const bool has_other = token + 1 < stop;
      round_row_to_bfloat16(of.key_of(token, head), dim, keys, depth);
      if (has_other) round_row_to_bfloat16(of.key_of(token + 1, head), dim, keys + depth, depth);
      interleave_rows(of.value_of(token, head), has_other ? of.value_of(token + 1, head) : nullptr, dim,
                      to.values + head * to.value_size + token * dim,
                      [](Floats a, Floats b, int64_t) INLINE_LAMBDA { return to_bfloat16_pairs(a, b); });
    }
  }
}

void attend_bfloat16_block(const Sequence& of, const BFloat16* queries, const BFloat16* keys, const BFloat16* values,
                           const Biases& biases, const PositionKeys<BFloat16>& positions, int64_t head, int64_t block) {
  const int64_t dim = of.dim, depth = of.depth();
  float* scores = scratch<Use::SCORES, float>(KEYS_AT_ONCE * PANEL);
  BFloat16* weights = scratch<Use::WEIGHTS, BFloat16>(KEYS_AT_ONCE * PANEL);
  float* sums = scratch<Use::OUTPUTS, float>(dim * PANEL);
  std::fill_n(sums, dim * PANEL, 0.0f);
  Columns columns;
  for_keys(of, block, [&](int64_t key, int64_t count) {
    for_tiles_of(count, [&](int64_t first, auto rows) {
      bfloat16_tile<rows, 1>(keys + (key + first) * depth, depth, depth, queries, scores + first * PANEL, PANEL, true);
    });
    biases.add(head, block, key, count, scores);
    positions.add(of, head, block, key, count, scores, [&](auto rows, const BFloat16* row, const BFloat16* columns, float* out) {
      bfloat16_tile<rows, 1>(row, depth, depth, columns, out, PANEL, true);
    });
    raise_tops_of_sums(scores, count, columns.tops, columns.totals, sums, dim);
    column_exp2_pairs(scores, count, columns.tops, columns.totals, weights);
    for_tiles_of(dim, [&](int64_t d, auto rows) {
      bfloat16_tile<rows, 1, true>(values + key * dim + 2 * d, dim, count + count % 2, weights, sums + d * PANEL, PANEL,
                                   false);
    });
  });
  invert_totals(columns.totals);
  write_block(of, sums, columns.totals, head, block);
}

void attend_bfloat16(const Sequence& of, float scale) {
  if (amx_attends() && !of.position_keys) return attend_bfloat16_by_amx(of, scale);
  const Packed<BFloat16> packed(of, of.depth(), of.token_depth());
  const Biases biases(of);
  PositionKeys<BFloat16> positions(of, of.depth());
  positions.rows = round_position_keys(of);
  positions.head_size = of.position_stride ? (2 * of.tokens - 1) * of.depth() : 0;
  for_token_blocks(of, [&](int64_t block, int64_t first, int64_t stop) {
    pack_bfloat16(of, scale * LOG2_E, block, first, stop, packed, positions);
  });
  for_query_blocks(of, [&](int64_t head, int64_t kv, int64_t block) {
    attend_bfloat16_block(of, packed.queries_of(of, head, block), packed.keys + kv * packed.key_size,
                          packed.values + kv * packed.value_size, biases, positions, head, block);
  });
}

}  // namespace
}  // namespace transept

// The fields of transept::Sequence are those of _Sequence in encoder_attention.py.
EXPORT int64_t transept_attend_sequence(const transept::Sequence* sequence, float scale) {
  return transept::run_kernel([&] { transept::attend(*sequence, scale); });
}

EXPORT int64_t transept_attend_sequence_in_bfloat16(const transept::Sequence* sequence, float scale) {
  return transept::run_kernel([&] { transept::attend_bfloat16(*sequence, scale); });
}
