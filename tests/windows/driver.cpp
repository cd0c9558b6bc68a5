// Calls kernels of a DLL on Windows, or under wine, and compares their results with plain loops in double.
//
//   driver.exe kernels_avx2.dll
//
// `make test-windows-kernels` compiles and runs it for each DLL. The declarations are those of transept/core/kernels/cpu.
#include <cpuid.h>
#include <windows.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

struct Weight {  // as in gemm/weight.h
  const void* values;
  const float* scales;
  int64_t num_outputs, num_inputs, kind;
};
enum Kind : int64_t { FLOAT32, FLOAT16, INT8, BFLOAT16 };

// The bit of CPUID that each level needs and the levels below it do not.
const struct {
  const char* level;
  unsigned subleaf, index, bit;  // of leaf 7; index: 0 to 3 for eax, ebx, ecx and edx
} LEVELS[] = {{"avx2", 0, 1, 5}, {"avx_vnni", 1, 0, 4}, {"avx512", 0, 1, 16}, {"avx512_vnni", 0, 2, 11}, {"avx512_bf16", 1, 0, 5}};

bool runs(const std::string& path) {
  for (const auto& each : LEVELS) {
    if (path.find(std::string("kernels_") + each.level + ".") == std::string::npos) continue;
    unsigned registers[4] = {};
    __get_cpuid_count(7, each.subleaf, &registers[0], &registers[1], &registers[2], &registers[3]);
    return registers[each.index] >> each.bit & 1;
  }
  return true;
}

HMODULE library;
int num_failures = 0;

template <class Function>
Function function(const char* name) {
  const auto found = reinterpret_cast<Function>(GetProcAddress(library, name));
  if (!found) {
    std::printf("%s is not exported\n", name);
    std::exit(2);
  }
  return found;
}

void expect(bool holds, const char* what, double value) {
  std::printf("%s  %-60s %.3g\n", holds ? "ok    " : "FAILED", what, value);
  num_failures += !holds;
}

std::mt19937 generator(7);
std::vector<float> numbers(size_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> made(count);
  for (float& number : made) number = normal(generator);
  return made;
}

// Return the largest difference of out from x @ weight.T + bias, in parts of the largest product.
double difference(const std::vector<float>& x, const std::vector<float>& weight, const std::vector<float>& bias,
                  const std::vector<float>& out) {
  const size_t num_out = bias.size(), num_in = weight.size() / num_out, rows = x.size() / num_in;
  double most = 0, largest = 0;
  for (size_t row = 0; row < rows; row++) {
    for (size_t output = 0; output < num_out; output++) {
      double sum = bias[output];
      for (size_t i = 0; i < num_in; i++) sum += (double)x[row * num_in + i] * weight[output * num_in + i];
      most = std::fmax(most, std::fabs(sum - out[row * num_out + output]));
      largest = std::fmax(largest, std::fabs(sum));
    }
  }
  return most / largest;
}

void products(int64_t rows, int64_t num_out, int64_t num_in) {
  const auto panel = function<int64_t (*)()>("transept_panel")();
  const auto pack_floats =
      function<int64_t (*)(const void*, int64_t, int64_t, int64_t, int64_t, void*)>("transept_pack_floats");
  const auto pack_int8 =
      function<int64_t (*)(const void*, int64_t, int64_t, int64_t, int64_t, int8_t*, float*)>("transept_pack_int8");
  const auto pack_bfloat16 =
      function<int64_t (*)(const void*, int64_t, int64_t, int64_t, void*)>("transept_pack_bfloat16");
  const auto whole_pairs = function<int64_t (*)(int64_t)>("transept_whole_pairs");
  const auto product =
      function<int64_t (*)(const float*, int64_t, const Weight*, const float*, int64_t, float*)>("transept_product");
  const auto x = numbers(rows * num_in), weight = numbers(num_out * num_in), bias = numbers(num_out);
  const int64_t panels = (num_out + panel - 1) / panel;
  std::vector<float> out(rows * num_out), scales(panels * panel);
  char* values = static_cast<char*>(_aligned_malloc(panels * panel * (whole_pairs(num_in) + 2) * sizeof(float), 64));
  struct {
    Kind kind;
    const char* name;
    double tolerance;
  } kinds[] = {{FLOAT32, "float32", 1e-6}, {BFLOAT16, "bfloat16", 8e-3}, {INT8, "int8", 2e-2}};
  for (const auto& each : kinds) {
    int64_t packed = 1;
    if (each.kind == FLOAT32) packed = pack_floats(weight.data(), 0, num_out, num_in, FLOAT32, values);
    if (each.kind == BFLOAT16) packed = pack_bfloat16(weight.data(), 0, num_out, num_in, values) >= 0;
    if (each.kind == INT8) {
      packed = pack_int8(weight.data(), 0, num_out, num_in, INT8, reinterpret_cast<int8_t*>(values), scales.data()) >= 0;
    }
    const Weight packed_weight{values, each.kind == INT8 ? scales.data() : nullptr, num_out, num_in, each.kind};
    std::memset(out.data(), 0xff, out.size() * sizeof(float));  // NaN
    const int64_t done = product(x.data(), rows, &packed_weight, bias.data(), -1, out.data());
    char what[100];
    std::snprintf(what, sizeof what, "product in %s, %lld rows, [%lld, %lld]", each.name, (long long)rows,
                  (long long)num_out, (long long)num_in);
    const double differs = difference(x, weight, bias, out);
    expect(packed == 1 && done >= 0 && differs < each.tolerance, what, differs);
  }
  _aligned_free(values);
}

void argmax() {
  const auto highest =
      function<int64_t (*)(const float*, int64_t, int64_t, int64_t*, float*)>("transept_argmax");
  const int64_t rows = 3, size = 51865;
  const auto logits = numbers(rows * size);
  int64_t tokens[rows];
  float logprobs[rows];
  highest(logits.data(), rows, size, tokens, logprobs);
  for (int64_t row = 0; row < rows; row++) {
    int64_t best = 0;
    double sum = 0;
    for (int64_t i = 0; i < size; i++) {
      if (logits[row * size + i] > logits[row * size + best]) best = i;
      sum += std::exp((double)logits[row * size + i]);
    }
    const double differs = std::fabs(logits[row * size + best] - std::log(sum) - logprobs[row]);
    expect(tokens[row] == best && differs < 1e-4, "highest of 51865 logits, and its log probability", differs);
  }
}

void norm() {
  const auto add_and_norm = function<int64_t (*)(const float*, const float*, const float*, const float*, const float*,
                                                 float, int64_t, int64_t, float*, float*)>("transept_add_and_norm");
  const int64_t rows = 37, columns = 384;
  const auto x = numbers(rows * columns), y = numbers(rows * columns), weight = numbers(columns), bias = numbers(columns);
  std::vector<float> total(rows * columns), normed(rows * columns);
  add_and_norm(x.data(), y.data(), nullptr, weight.data(), bias.data(), 1e-5f, rows, columns, total.data(), normed.data());
  double most = 0;
  for (int64_t row = 0; row < rows; row++) {
    double mean = 0, squares = 0;
    for (int64_t i = row * columns; i < (row + 1) * columns; i++) mean += ((double)x[i] + y[i]) / columns;
    for (int64_t i = row * columns; i < (row + 1) * columns; i++) squares += std::pow(x[i] + y[i] - mean, 2) / columns;
    for (int64_t i = 0; i < columns; i++) {
      const double sum = (double)x[row * columns + i] + y[row * columns + i];
      const double expected = (sum - mean) / std::sqrt(squares + 1e-5) * weight[i] + bias[i];
      most = std::fmax(most, std::fabs(expected - normed[row * columns + i]));
    }
  }
  expect(most < 1e-4, "layer norm of sums, 37 rows", most);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && !runs(argv[1])) {
    std::printf("skipped: this processor lacks the instructions of %s\n", argv[1]);
    return 0;
  }
  if (argc != 2 || !(library = LoadLibraryA(argv[1]))) {
    std::printf("usage: driver.exe DLL; the DLL cannot be loaded: error %lu\n", GetLastError());
    return 2;
  }
  const char* fingerprint = function<const char* (*)()>("transept_fingerprint")();
  expect(std::strlen(fingerprint) == 64, "fingerprint of the sources", (double)std::strlen(fingerprint));
  const auto set_num_threads = function<void (*)(int)>("transept_set_num_threads");
  const auto scratch_bytes = function<int64_t (*)()>("transept_scratch_bytes");
  function<void (*)(void*)>("transept_use_gomp")(nullptr);
  for (int threads : {1, 3}) {
    set_num_threads(threads);
    products(1, 80, 384);
    products(5, 33, 63);
    products(300, 512, 384);
  }
  argmax();
  norm();
  std::thread other([&] {  // its scratch memory is freed when it ends
    set_num_threads(2);
    products(70, 100, 200);
  });
  other.join();
  expect(scratch_bytes() > 0, "bytes of scratch memory", (double)scratch_bytes());
  expect(function<int64_t (*)()>("transept_free_scratch")() == 1, "scratch memory is freed", 0);
  expect(scratch_bytes() == 0, "bytes of scratch memory afterwards", (double)scratch_bytes());
  return num_failures != 0;
}
