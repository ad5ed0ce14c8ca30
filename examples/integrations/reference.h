// SPDX-License-Identifier: Apache-2.0
// Attention of one query row in double, as the formula has it: what the adapters' tests compare with.
#ifndef LATHE_EXAMPLES_INTEGRATIONS_REFERENCE_H_
#define LATHE_EXAMPLES_INTEGRATIONS_REFERENCE_H_

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <vector>

namespace reference {

using Vector = std::vector<double>;

struct Row {
  Vector out;
  double lse = -std::numeric_limits<double>::infinity();  // without the sink
};

// The value of a key is its first v_dim columns. `sink`: a logit without a value, -inf for none.
inline Row Attend(const Vector& q, const std::vector<Vector>& keys, double scale, size_t v_dim,
                  double sink = -std::numeric_limits<double>::infinity()) {
  Row row;
  row.out.assign(v_dim, 0.0);
  double sum = 0.0;
  for (const Vector& key : keys) {
    double score = 0.0;
    for (size_t c = 0; c < q.size(); ++c) score += q[c] * key[c];
    const double weight = std::exp(scale * score);
    sum += weight;
    for (size_t c = 0; c < v_dim; ++c) row.out[c] += weight * key[c];
  }
  if (keys.empty()) return row;
  for (double& x : row.out) x /= sum + std::exp(sink);
  row.lse = std::log(sum);
  return row;
}

// Counts and prints what is wrong.
class Checks {
 public:
  void Near(const char* what, double got, double expected, double tolerance) {
    ++count_;
    if (got == expected || std::abs(got - expected) <= tolerance) return;
    if (++failed_ <= 10) std::fprintf(stderr, "%s: %.9g, expected %.9g\n", what, got, expected);
  }
  void True(const char* what, bool is_true) { Near(what, is_true ? 1.0 : 0.0, 1.0, 0.0); }
  int Finish(const char* name) const {
    std::printf("%s: %d checks, %d failed\n", name, count_, failed_);
    return failed_ == 0 && count_ > 0 ? 0 : 1;
  }

 private:
  int count_ = 0, failed_ = 0;
};

}  // namespace reference

#endif  // LATHE_EXAMPLES_INTEGRATIONS_REFERENCE_H_
