// SPDX-License-Identifier: Apache-2.0
// Checks of row transforms, for every operation that takes one: a member `transform` of its arguments.
#ifndef LATHE_HOST_ROW_TRANSFORM_CHECK_H_
#define LATHE_HOST_ROW_TRANSFORM_CHECK_H_

#include <cmath>

#include "lathe/base/row_transform.h"
#include "lathe/host/check.h"

namespace lathe::detail {
namespace {

// What refusals call the parts of a rope, which some operations take alone: statuses hold no strings of their own.
struct RopeNames {
  const char* cos;
  const char* sin;
};
constexpr RopeNames kTransformRopeNames = {"transform.rope.cos", "transform.rope.sin"};

inline Status CheckNormVector(const char* name, const In<1>& vector, int64_t width) {
  if (!IsGiven(vector)) return OkStatus();
  LATHE_RETURN_IF_REFUSED(CheckTensor(name, vector, {}));
  return CheckExtent(name, 0, vector.extent[0], width);
}

// For rows of `width` columns.
inline Status CheckRowNorm(const RowNorm& norm, int64_t width) {
  if (norm.kind == NormKind::kNone) return OkStatus();
  if (norm.kind != NormKind::kRms && norm.kind != NormKind::kLayer) {
    return Invalid("transform.norm.kind").Is(norm.kind).Must("be a known NormKind");
  }
  LATHE_RETURN_IF_REFUSED(CheckNormVector("transform.norm.weight", norm.weight, width));
  if (norm.kind == NormKind::kRms && IsGiven(norm.bias)) {
    return Invalid("transform.norm.bias").Must("not be given with NormKind::kRms");
  }
  LATHE_RETURN_IF_REFUSED(CheckNormVector("transform.norm.bias", norm.bias, width));
  if (!(norm.eps >= 0.0f && std::isfinite(norm.eps))) {
    return Invalid("transform.norm.eps").Is(norm.eps).Must("be finite and at least 0");
  }
  return OkStatus();
}

inline Status CheckRope(const RopeNames& names, const Rope& rope, int64_t width) {
  if (!rope.is_given()) return OkStatus();
  LATHE_RETURN_IF_REFUSED(CheckTensor(names.cos, rope.cos, {rope.cos.extent[0] > 0}));
  LATHE_RETURN_IF_REFUSED(CheckTensor(names.sin, rope.sin, {rope.cos.extent[0] > 0}));
  LATHE_RETURN_IF_REFUSED(CheckExtents(names.sin, rope.sin, rope.cos.extent, 2));
  if (rope.cos.extent[1] > width / 2) {
    return RefuseExtent(names.cos, 1, rope.cos.extent[1])
        .Must("be at most half of the row's width,", width / 2);
  }
  return OkStatus();
}

inline Status CheckRowTransform(const RowTransform& transform, int64_t width) {
  LATHE_RETURN_IF_REFUSED(CheckRowNorm(transform.norm, width));
  LATHE_RETURN_IF_REFUSED(CheckRope(kTransformRopeNames, transform.rope, width));
  if (transform.hadamard && (width & (width - 1)) != 0) {
    return Invalid("transform.hadamard")
        .Must("not be asked for unless the row's width is a power of two; it is", width);
  }
  return OkStatus();
}

// positions [>= num_rows], below P of the rope; nothing is looked at without one. is_used(row): rows that are
// skipped may have any position.
template <class IsUsed>
Status CheckPositions(const char* name, const IndexView<1>& positions, const Rope& rope,
                      int64_t num_rows, const IsUsed& is_used) {
  if (!rope.is_given()) return OkStatus();
  LATHE_RETURN_IF_REFUSED(CheckIndices(name, positions, {-1}));
  if (positions.extent[0] < num_rows) {
    return RefuseExtent(name, 0, positions.extent[0])
        .Must("be at least the number of rows,", num_rows);
  }
  const int64_t limit = rope.cos.extent[0];
  for (int64_t i = 0; i < num_rows; ++i) {
    if (!is_used(i)) continue;
    const int64_t position = positions(i);
    if (position >= 0 && position < limit) continue;
    const Status refused = OutOfRange(name).At(i).Is(position);
    return position < 0 ? refused.Must("be at least", 0)
                        : refused.Must("be below the rope's cos.extent[0] =", limit);
  }
  return OkStatus();
}

// Whether one of the arrays that a transform reads meets what is written.
inline bool Overlaps(const RowTransform& transform, ByteRange written) {
  if (transform.norm.kind != NormKind::kNone && (Overlap(RangeOf(transform.norm.weight), written) ||
                                                 Overlap(RangeOf(transform.norm.bias), written))) {
    return true;
  }
  return transform.rope.is_given() && (Overlap(RangeOf(transform.rope.cos), written) ||
                                       Overlap(RangeOf(transform.rope.sin), written));
}

}  // namespace
}  // namespace lathe::detail

#endif  // LATHE_HOST_ROW_TRANSFORM_CHECK_H_
