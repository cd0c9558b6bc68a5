// Keys are cut into pieces of a fixed length, each with its own softmax, and the pieces are joined afterwards. So cores also
// share the work of one sequence, and a result does not depend on the other sequences of the step.
#include "paged_attention.h"

#include <algorithm>
#include <limits>

#include "../elementwise/math.h"
#include "../export.h"
#include "../gemm/blocking.h"
#include "../parallel.h"
#include "../scratch.h"

namespace transept {
namespace {

constexpr int MOST_VECTORS = 8;       // vectors of a head whose loops are unrolled
constexpr int PREFETCH_KEYS = 2048;   // bytes ahead, into the second cache
constexpr float HIDDEN = -1e38f;      // the bias of a hidden key, and its score: the sum is rounded to multiples of 1e31
constexpr int64_t ROWS_IN_TURN = 8;   // fewer rows are joined by one thread

float exp_of(float x) {
  return of_one([](Floats numbers) { return exp(numbers); }, x);
}

struct Sizes {
  int64_t queries, heads, shared, dim;  // shared: heads that have a key in common
};

// Call act(index, query_head, offset_in_key) for all heads of the keys of a part. The caller reads one key of each of several
// equal parts at a time, because reading memory at several places is faster.
template <class Act>
INLINE void for_parts(int64_t keys_of_part, const Sizes& sizes, const Act& act) {
  for (int64_t index = 0; index < keys_of_part; index++) {
    for (int64_t query = 0; query < sizes.queries; query++) {
      int64_t inside = 0, left = sizes.shared;
      for (int64_t head = 0; head < sizes.heads; head++) {
        act(index, query * sizes.heads + head, inside);
        if (--left == 0) inside += sizes.dim, left = sizes.shared;
      }
    }
  }
}

template <class Number, int VECTORS>
INLINE void prefetch_key(const Number* key) {
  if (PREFETCHES_KEYS) prefetch<VECTORS * LANES * sizeof(Number), PREFETCH_KEYS, SECOND_CACHE>(key);
}

template <class Number>
float dot(const float* a, const Number* b, int64_t size) {
  Floats sums = {};
  int64_t i = 0;
  for (; i + LANES <= size; i += LANES) sums += load(a + i) * load(b + i);
  float total = sum(sums);
  for (; i < size; i++) total += a[i] * load_one(b + i);
  return total;
}

// Compute scores, [queries, heads, keys], of the keys from `done` on, in WAYS equal parts. Raises `done` by the keys of these
// parts. keys: numbers of the cache. places: [count], the index of each key's first number in `keys`.
template <int WAYS, int VECTORS, class Number>
INLINE void score_parts(const float* query, const Number* keys, const int64_t* places, int64_t count, const Sizes& sizes,
                        float scale, float* out, int64_t& done) {
  const int64_t part = (count - done) / WAYS, first = done;
  for_parts(part, sizes, [&](int64_t index, int64_t head, int64_t inside) INLINE_LAMBDA {
    const float* numbers = query + head * (VECTORS * LANES);
    const Number* from[WAYS];
    Floats sums[WAYS] = {};
    UNROLL for (int way = 0; way < WAYS; way++) {
      from[way] = keys + places[first + way * part + index] + inside;
      prefetch_key<Number, VECTORS>(from[way]);
    }
    UNROLL for (int vector = 0; vector < VECTORS; vector++) {
      const Floats of_query = load(numbers + vector * LANES);
      UNROLL for (int way = 0; way < WAYS; way++) sums[way] += of_query * load(from[way] + vector * LANES);
    }
    float* to = out + head * count + first + index;
    UNROLL for (int way = 0; way < WAYS; way += 2) {
      float totals[2];
      sums_of_two(sums[way], sums[way + 1], totals[0], totals[1]);
      to[way * part] = totals[0] * scale;
      to[(way + 1) * part] = totals[1] * scale;
    }
  });
  done += WAYS * part;
}

// Compute the scores of all keys.
template <class Number>
void score(const float* query, const Number* keys, const int64_t* places, int64_t count, const Sizes& sizes, float scale,
           float* out) {
  int64_t done = 0;
  if (sizes.dim % LANES == 0 && sizes.dim <= MOST_VECTORS * LANES && count > 1) {
    with_constant<MOST_VECTORS>(sizes.dim / LANES, [&](auto number) {
      constexpr int VECTORS = decltype(number)::value;
      score_parts<4, VECTORS>(query, keys, places, count, sizes, scale, out, done);
      score_parts<2, VECTORS>(query, keys, places, count, sizes, scale, out, done);
    });
  }
  for (int64_t key = done; key < count; key++) {
    for (int64_t head = 0; head < sizes.queries * sizes.heads; head++) {
      const Number* place = keys + places[key] + head % sizes.heads / sizes.shared * sizes.dim;
      out[head * count + key] = dot(query + head * sizes.dim, place, sizes.dim) * scale;
    }
  }
}

// Add values, times their weights, [queries, heads, values], to out, [queries, heads, dim]: the values from `done` on, in WAYS
// equal parts. Raises `done` by the values of these parts.
template <int WAYS, int VECTORS, class Number>
INLINE void add_parts(const float* weights, const Number* values, const int64_t* places, int64_t count,
                      const Sizes& sizes, float* out, int64_t& done) {
  const int64_t part = (count - done) / WAYS, first = done;
  for_parts(part, sizes, [&](int64_t index, int64_t head, int64_t inside) INLINE_LAMBDA {
    const float* of_head = weights + head * count + first + index;
    float* to = out + head * (VECTORS * LANES);
    const Number* from[WAYS];
    Floats shares[WAYS];
    UNROLL for (int way = 0; way < WAYS; way++) {
      from[way] = values + places[first + way * part + index] + inside;
      shares[way] = broadcast(of_head[way * part]);
      prefetch_key<Number, VECTORS>(from[way]);
    }
    UNROLL for (int vector = 0; vector < VECTORS; vector++) {
      Floats total = load(to + vector * LANES);
      UNROLL for (int way = 0; way < WAYS; way++) total += shares[way] * load(from[way] + vector * LANES);
      store(to + vector * LANES, total);
    }
  });
  done += WAYS * part;
}

// Add all values.
template <class Number>
void add_values(const float* weights, const Number* values, const int64_t* places, int64_t count, const Sizes& sizes,
                float* out) {
  int64_t done = 0;
  if (sizes.dim % LANES == 0 && sizes.dim <= MOST_VECTORS * LANES && count > 1) {
    with_constant<MOST_VECTORS>(sizes.dim / LANES, [&](auto number) {
      constexpr int VECTORS = decltype(number)::value;
      add_parts<4, VECTORS>(weights, values, places, count, sizes, out, done);
      add_parts<2, VECTORS>(weights, values, places, count, sizes, out, done);
    });
  }
  for (int64_t value = done; value < count; value++) {
    for (int64_t head = 0; head < sizes.queries * sizes.heads; head++) {
      const Number* place = values + places[value] + head % sizes.heads / sizes.shared * sizes.dim;
      const float weight = weights[head * count + value];
      for_vectors(out + head * sizes.dim, sizes.dim, [&](Floats numbers, int64_t first) {
        if (first + LANES <= sizes.dim) return numbers + broadcast(weight) * load(place + first);
        for (int64_t i = first; i < sizes.dim; i++) numbers[i - first] += weight * load_one(place + i);
        return numbers;
      });
    }
  }
}

// Attend to the keys of a piece. sums: [queries, heads, dim], values times exp(score - highest score). tops: [queries, heads,
// 2], the highest score and the sum of the weights.
template <class Number>
void attend_piece(const float* query, int64_t heads, const KVCache& cache, const PagedWork& work, const Piece& piece,
                  float scale, const DistanceBias& bias, float* sums, float* tops) {
  const int64_t count = piece.stop_key - piece.first_key, token_size = cache.kv_heads * cache.dim;
  const Sizes sizes{piece.stop_row - piece.first_row, heads, heads / cache.kv_heads, cache.dim};
  int64_t* places = scratch<Use::PLACES, int64_t>(count);  // the index of each key's first number
  for (int64_t key = 0; key < count; key++) {
    const int64_t position = piece.first_key + key;
    const int64_t block = work.blocks[piece.table + position / work.block_size];
    places[key] = (block * work.block_size + position % work.block_size) * token_size;
  }
  float* weights = scratch<Use::WEIGHTS, float>(sizes.queries * heads * count);
  const Number* keys = static_cast<const Number*>(cache.data);
  score(query + piece.first_row * heads * cache.dim, keys, places, count, sizes, scale, weights);
  for (int64_t head = 0; head < sizes.queries * heads; head++) {
    float* row = weights + head * count;
    if (bias.values) {  // the column of the piece's first key
      const int64_t nearest = bias.distances - piece.length + piece.first_key;
      const float* biases = bias.values + head % heads * bias.distances + nearest;
      for (int64_t key = 0; key < count; key++) row[key] += biases[key];
    }
    const int64_t whole = count / LANES * LANES;
    Floats highests = broadcast(-std::numeric_limits<float>::infinity());
    for (int64_t key = 0; key < whole; key += LANES) highests = maximum(load(row + key), highests);
    float top = highest(highests);
    for (int64_t key = whole; key < count; key++) top = row[key] > top ? row[key] : top;
    Floats totals = {};
    for_vectors(row, whole, [&](Floats scores, int64_t) INLINE_LAMBDA {
      const Floats powers = exp(scores - broadcast(top));
      totals += powers;
      return powers;
    });
    float total = sum(totals);
    for (int64_t key = whole; key < count; key++) total += row[key] = exp_of(row[key] - top);
    tops[2 * head] = top;
    tops[2 * head + 1] = total;
  }
  std::fill_n(sums, sizes.queries * heads * cache.dim, 0.0f);
  add_values(weights, keys + cache.slots * token_size, places, count, sizes, sums);
}

}  // namespace

void attend_paged(const float* query, int64_t heads, const KVCache& cache, const PagedWork& work, float scale,
                  const DistanceBias& bias, float* out) {
  const int64_t dim = cache.dim, per_piece = work.most_queries * heads;
  float* sums = scratch<Use::PIECE_SUMS, float>(work.num_pieces * per_piece * dim);
  float* tops = scratch<Use::PIECE_TOPS, float>(work.num_pieces * per_piece * 2);
  parallel_for(work.num_pieces, [&](int64_t index) {
    auto attend = cache.is_half ? attend_piece<Half> : attend_piece<float>;
    attend(query, heads, cache, work, work.pieces[index], scale, bias, sums + index * per_piece * dim,
           tops + index * per_piece * 2);
  });
  auto join = [&](int64_t index) {  // make a row's softmax of those of its pieces
    const RowPieces& row = work.rows[index];
    const int64_t query_of_piece = row.row - work.pieces[row.first_piece].first_row;
    for (int64_t head = 0; head < heads; head++) {
      const int64_t place = query_of_piece * heads + head;
      float top = -std::numeric_limits<float>::infinity();
      for (int64_t piece = row.first_piece; piece < row.stop_piece; piece++) {
        top = std::max(top, tops[(piece * per_piece + place) * 2]);
      }
      float total = 0;
      float* to = out + (row.row * heads + head) * dim;
      std::fill_n(to, dim, 0.0f);
      for (int64_t piece = row.first_piece; piece < row.stop_piece; piece++) {
        const float* of_piece = tops + (piece * per_piece + place) * 2;
        const float share = exp_of(of_piece[0] - top);
        total += share * of_piece[1];
        const float* from = sums + (piece * per_piece + place) * dim;
        for (int64_t i = 0; i < dim; i++) to[i] += share * from[i];
      }
      if (top == HIDDEN) total = std::numeric_limits<float>::infinity();  // all its keys are hidden
      for (int64_t i = 0; i < dim; i++) to[i] /= total;
    }
  };
  if (work.num_rows < ROWS_IN_TURN) {
    for (int64_t row = 0; row < work.num_rows; row++) join(row);
  } else {
    parallel_for(work.num_rows, join);
  }
}

}  // namespace transept

EXPORT int64_t transept_attend_paged(const float* query, int64_t heads, const transept::KVCache* cache,
                                     const transept::PagedWork* work, float scale, const transept::DistanceBias* bias,
                                     float* out) {
  return transept::run_kernel([&] { transept::attend_paged(query, heads, *cache, *work, scale, *bias, out); });
}
