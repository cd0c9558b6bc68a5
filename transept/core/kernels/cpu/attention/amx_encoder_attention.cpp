// Self-attention of an encoder's sequence by AMX, with queries, keys, values and weights rounded to bfloat16. Tiles of keys
// times tiles of queries are scores, [keys, PANEL]. Tiles of values, transposed, times tiles of weights are the sums,
// [dim, PANEL]. The tiles of the next keys are multiplied while the vector units compute the weights of these keys.
#include "amx_encoder_attention.h"

#include <cstdlib>

#include "../gemm/amx_blocks.h"
#include "../gemm/rounding.h"
#include "encoder_blocks.h"

namespace transept {

#if defined(TRANSEPT_EMULATE_AMX) || defined(__AMX_TILE__)

namespace {

constexpr int KEYS_OF_PART = 128;  // keys whose scores and weights stay in the first cache
constexpr int ROWS_MEANWHILE = 4;  // rows of scores, an even number, that become weights during a product of tiles

int64_t whole(int64_t size, int64_t part) { return (size + part - 1) / part * part; }

// A sequence in the order of tiles, padded with zeros
//   queries: for each block and head [depth / DEPTH, 16 pairs, PANEL, 2]
//   keys:    for each head [tokens / 16, depth / DEPTH, 16, DEPTH]
//   values:  for each head [tokens / DEPTH, dim / 16, 16 dimensions, DEPTH tokens]
struct Tiled {
  int64_t depth, tokens;                     // with padding
  int64_t query_size, key_size, value_size;  // numbers of a block of queries, of a head's keys and of its values
  BFloat16 *queries, *keys, *values;

  explicit Tiled(const Sequence& of)
      : depth(whole(of.dim, DEPTH)),
        tokens(whole(of.tokens, BLOCK)),
        query_size(depth * PANEL),
        key_size(tokens * depth),
        value_size(tokens * depth),
        queries(scratch<Use::QUERIES, BFloat16>(of.heads * of.blocks() * query_size)),
        keys(scratch<Use::KEYS, BFloat16>(of.kv_heads * key_size)),
        values(scratch<Use::VALUES, BFloat16>(of.kv_heads * value_size)) {}
};

// Load numbers `from` to `from + LANES` of a row of `size` numbers; zeros beyond its end, or if it is null.
INLINE Floats load_some(const float* row, int64_t from, int64_t size) {
  if (!row || from >= size) return Floats{};
  if (from + LANES <= size) return load(row + from);
  float numbers[LANES] = {};
  std::copy_n(row + from, size - from, numbers);
  return load(numbers);
}

// Round numbers `from` to `from + DEPTH` of a row, times a factor, to bfloat16.
INLINE Shorts round_some(const float* row, int64_t from, int64_t size, float factor) {
  alignas(64) float numbers[DEPTH];
  BFloat16 rounded[DEPTH];
  UNROLL for (int i = 0; i < DEPTH; i += LANES) store(numbers + i, load_some(row, from + i, size) * broadcast(factor));
  round_row_to_bfloat16(numbers, DEPTH, rounded, DEPTH);
  return load_as<Shorts>(rounded);
}

void pack_queries(const Sequence& of, float factor, int64_t block, const Tiled& to) {
  for (int64_t head = 0; head < of.heads; head++) {
    BFloat16* out = to.queries + (block * of.heads + head) * to.query_size;
    for (int64_t d = 0; d < to.depth; d += DEPTH, out += DEPTH * PANEL) {
      UNROLL for (int side = 0; side < 2; side++) {
        Floats pairs[LANES];  // each of a query, then each of two dimensions
        UNROLL for (int i = 0; i < LANES; i++) {
          const int64_t token = block * PANEL + side * LANES + i;
          pairs[i] = bits_as<Floats>(round_some(token < of.tokens ? of.query_of(token, head) : nullptr, d, of.dim, factor));
        }
        transpose(pairs);
        UNROLL for (int i = 0; i < LANES; i++) memcpy(out + i * 2 * PANEL + side * DEPTH, &pairs[i], sizeof pairs[i]);
      }
    }
  }
}

void pack_keys(const Sequence& of, int64_t block, const Tiled& to) {
  for (int64_t head = 0; head < of.kv_heads; head++) {
    const TiledRows keys{(char*)(to.keys + head * to.key_size), to.depth / DEPTH};
    for (int64_t token = block * BLOCK; token < (block + 1) * BLOCK; token++) {
      const float* row = token < of.tokens ? of.key_of(token, head) : nullptr;
      char* out = keys.of(token);
      for (int64_t d = 0; d < to.depth; d += DEPTH, out += TILE_BYTES) {
        const Shorts numbers = round_some(row, d, of.dim, 1.0f);
        memcpy(out, &numbers, sizeof numbers);
      }
    }
  }
}

void pack_values(const Sequence& of, int64_t block, const Tiled& to) {
  for (int64_t head = 0; head < of.kv_heads; head++) {
    BFloat16* out = to.values + head * to.value_size + block * DEPTH * to.depth;
    for (int64_t d = 0; d < to.depth; d += LANES, out += TILE) {
      Floats pairs[LANES];  // each of two tokens, then each of a dimension
      UNROLL for (int i = 0; i < LANES; i++) {
        const int64_t token = block * DEPTH + 2 * i;
        const Floats first = load_some(token < of.tokens ? of.value_of(token, head) : nullptr, d, of.dim);
        const Floats second = load_some(token + 1 < of.tokens ? of.value_of(token + 1, head) : nullptr, d, of.dim);
        pairs[i] = bits_as<Floats>(to_bfloat16_pairs(first, second));
      }
      transpose(pairs);
      UNROLL for (int i = 0; i < LANES; i++) memcpy(out + i * DEPTH, &pairs[i], sizeof pairs[i]);
    }
  }
}

// Compute scores of 32 keys by a block of queries, [32, PANEL]. meanwhile() is called after each product and uses no tiles.
template <class Meanwhile>
INLINE void multiply_keys(const BFloat16* keys, const BFloat16* queries, int64_t steps, float* scores,
                          const Meanwhile& meanwhile) {
  ZERO_SUMS();
  for (int64_t step = 0; step < steps; step++) {
    TILE_LOAD(6, queries + step * 2 * TILE, 2 * ROW_BYTES);
    TILE_LOAD(7, queries + step * 2 * TILE + DEPTH, 2 * ROW_BYTES);
    LOAD_A((const char*)(keys + step * TILE), steps * TILE_BYTES);
    TILE_ADD_BFLOAT16(0, 4, 6);
    meanwhile();
    TILE_ADD_BFLOAT16(1, 4, 7);
    meanwhile();
    TILE_ADD_BFLOAT16(2, 5, 6);
    meanwhile();
    TILE_ADD_BFLOAT16(3, 5, 7);
    meanwhile();
  }
  STORE_SUMS(scores, PANEL);
}

// Add the values of a part's keys, times their weights, to sums, [depth, PANEL]. steps: of DEPTH keys. meanwhile(): see
// multiply_keys.
template <class Meanwhile>
INLINE void add_values(const BFloat16* values, int64_t depth, const BFloat16* weights, int64_t steps, float* sums,
                       const Meanwhile& meanwhile) {
  for (int64_t d = 0; d < depth; d += BLOCK) {
    FOR_SUMS(TILE_LOAD, sums + d * PANEL, PANEL);
    for (int64_t step = 0; step < steps; step++) {
      const BFloat16* rows = values + step * DEPTH * depth + d * DEPTH;
      TILE_LOAD(6, weights + step * 2 * TILE, 2 * ROW_BYTES);
      TILE_LOAD(7, weights + step * 2 * TILE + DEPTH, 2 * ROW_BYTES);
      LOAD_A((const char*)rows, TILE_BYTES);
      ADD_PRODUCTS(TILE_ADD_BFLOAT16);
      meanwhile();
    }
    STORE_SUMS(sums + d * PANEL, PANEL);
  }
}

void attend_tiles(const Sequence& of, const Tiled& tiled, const Biases& biases, int64_t head, int64_t kv, int64_t block) {
  const int64_t depth = tiled.depth, steps = depth / DEPTH;
  const BFloat16* queries = tiled.queries + (block * of.heads + head) * tiled.query_size;
  const BFloat16* keys = tiled.keys + kv * tiled.key_size;
  const BFloat16* values = tiled.values + kv * tiled.value_size;
  float* scores = scratch<Use::SCORES, float>(2 * KEYS_OF_PART * PANEL);
  float* next_scores = scores + KEYS_OF_PART * PANEL;
  BFloat16* weights = scratch<Use::WEIGHTS, BFloat16>(KEYS_OF_PART * PANEL);
  float* sums = scratch<Use::OUTPUTS, float>(depth * PANEL);
  std::fill_n(sums, depth * PANEL, 0.0f);
  Columns columns;
  float own_tops[PANEL];  // the highest scores of a part
  const auto keys_of = [&](int64_t key) { return std::max<int64_t>(0, std::min<int64_t>(KEYS_OF_PART, of.tokens - key)); };
  TILES_BEGIN();
  for (int64_t row = 0; row < keys_of(0); row += BLOCK) {
    multiply_keys(keys + row * depth, queries, steps, scores + row * PANEL, [] {});
  }
  biases.add(head, block, 0, keys_of(0), scores);
  std::fill_n(own_tops, PANEL, NO_TOP);
  raise_tops(scores, keys_of(0), own_tops);
  for (int64_t key = 0; key < of.tokens; key += KEYS_OF_PART, std::swap(scores, next_scores)) {
    const int64_t count = keys_of(key), next = key + KEYS_OF_PART, next_count = keys_of(next);
    raise_tops_of_sums(own_tops, 1, columns.tops, columns.totals, sums, depth);
    int64_t weighed = 0;
    const auto weigh = [&](int64_t rows) INLINE_LAMBDA {
      rows = std::min(rows, count - weighed);
      if (rows <= 0) return;
      column_exp2_pairs(scores + weighed * PANEL, rows, columns.tops, columns.totals, weights + weighed * PANEL);
      weighed += rows;
    };
    for (int64_t row = 0; row < next_count; row += BLOCK) {
      multiply_keys(keys + (next + row) * depth, queries, steps, next_scores + row * PANEL,
                    [&]() INLINE_LAMBDA { weigh(ROWS_MEANWHILE); });
    }
    weigh(KEYS_OF_PART);
    biases.add(head, block, next, next_count, next_scores);
    const int64_t filled = whole(count, DEPTH);
    std::fill(weights + whole(count, 2) * PANEL, weights + filled * PANEL, BFloat16{0});
    std::fill_n(own_tops, PANEL, NO_TOP);
    int64_t seen = 0;
    add_values(values + key * depth, depth, weights, filled / DEPTH, sums, [&]() INLINE_LAMBDA {
      const int64_t rows = std::min<int64_t>(4 * ROWS_MEANWHILE, next_count - seen);
      raise_tops(next_scores + seen * PANEL, rows, own_tops);
      seen += rows;
    });
    raise_tops(next_scores + seen * PANEL, next_count - seen, own_tops);
  }
  TILES_END();
  invert_totals(columns.totals);
  write_block(of, sums, columns.totals, head, block);
}

}  // namespace

bool amx_attends() { return true; }

void attend_bfloat16_by_amx(const Sequence& of, float scale) {
  const Tiled tiled(of);
  const Biases biases(of);
  for_token_blocks(of, [&](int64_t block, int64_t, int64_t) {
    pack_queries(of, scale * LOG2_E, block, tiled);
    pack_keys(of, block, tiled);
    pack_values(of, block, tiled);
  });
  for_query_blocks(of, [&](int64_t head, int64_t kv, int64_t block) { attend_tiles(of, tiled, biases, head, kv, block); });
}

#else

bool amx_attends() { return false; }

void attend_bfloat16_by_amx(const Sequence&, float) { std::abort(); }

#endif

}  // namespace transept
