// SPDX-License-Identifier: Apache-2.0
// A stand-in for ggml's header: the few names that lathe_ggml uses, so that it can be compiled and tested without
// ggml. In an engine the real header takes this one's place.
#ifndef LATHE_EXAMPLES_GGML_HOST_GGML_H_
#define LATHE_EXAMPLES_GGML_HOST_GGML_H_

#include <stddef.h>
#include <stdint.h>

enum ggml_type {
  GGML_TYPE_F32 = 0,
  GGML_TYPE_F16 = 1,
  GGML_TYPE_I32 = 26,
  GGML_TYPE_I64 = 27,
  GGML_TYPE_BF16 = 30
};

// Axis 0 is the innermost; nb are strides in bytes.
struct ggml_tensor {
  enum ggml_type type;
  int64_t ne[4];
  size_t nb[4];
  struct ggml_tensor* src[10];
  void* data;
};

#endif  // LATHE_EXAMPLES_GGML_HOST_GGML_H_
