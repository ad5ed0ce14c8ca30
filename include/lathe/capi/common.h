// SPDX-License-Identifier: Apache-2.0
// The C interface's vocabulary: status, numbers of types, formats and targets, tensors, buffers, threads.
#ifndef LATHE_CAPI_COMMON_H_
#define LATHE_CAPI_COMMON_H_

#include <stddef.h>
#include <stdint.h>

#ifndef LATHE_C_API
#define LATHE_C_API
#endif

#ifdef __cplusplus
#define LATHE_C_BEGIN extern "C" {
#define LATHE_C_END }
#else
#define LATHE_C_BEGIN
#define LATHE_C_END
#endif

LATHE_C_BEGIN

// Numbers are those of the C++ enums. Fields and results that hold them are int32_t, whatever the size of a C
// enum.
typedef enum lathe_status {
  LATHE_STATUS_OK = 0,
  LATHE_STATUS_INVALID_ARGUMENT = 1,
  LATHE_STATUS_BUFFER_TOO_SMALL = 2,
  LATHE_STATUS_INDEX_OUT_OF_RANGE = 3,
  LATHE_STATUS_STALE_PLAN = 4,
  LATHE_STATUS_TARGET_UNAVAILABLE = 5
} lathe_status;

// From 16 on: types of this interface alone, which C++ knows by other views.
typedef enum lathe_dtype {
  LATHE_DTYPE_FLOAT32 = 0,
  LATHE_DTYPE_FLOAT16 = 1,
  LATHE_DTYPE_BFLOAT16 = 2,
  LATHE_DTYPE_INT32 = 16,
  LATHE_DTYPE_INT64 = 17,
  LATHE_DTYPE_UINT8 = 18,
  LATHE_DTYPE_UINT64 = 19
} lathe_dtype;

// How one token's record is laid out (docs/formats.md); 128 and up are formats from outside.
typedef enum lathe_format {
  LATHE_FORMAT_LATENT_FLOAT32 = 0,
  LATHE_FORMAT_LATENT_FLOAT16 = 1,
  LATHE_FORMAT_LATENT_BFLOAT16 = 2,
  LATHE_FORMAT_LATENT_FP8_E4M3 = 3,
  LATHE_FORMAT_LATENT_FP8_E5M2 = 4,
  LATHE_FORMAT_LATENT_FP8_E4M3_FNUZ = 5,
  LATHE_FORMAT_FP8_DS_MLA = 6,
  LATHE_FORMAT_FP8_DS4 = 7,
  LATHE_FORMAT_BF16_DS4 = 8,
  LATHE_FORMAT_DS41_FP8 = 9,
  LATHE_FORMAT_DS41_FP4 = 10,
  LATHE_FORMAT_NVFP4_DS_MLA = 11,
  LATHE_FORMAT_INDEXER_FP8 = 12,
  LATHE_FORMAT_INDEXER_MXFP4 = 13
} lathe_format;

typedef enum lathe_target {
  LATHE_TARGET_AUTO = 0,
  LATHE_TARGET_PORTABLE = 1,
  LATHE_TARGET_AVX2 = 2,
  LATHE_TARGET_AVX3 = 3,
  LATHE_TARGET_AVX3_ZEN4 = 4,
  LATHE_TARGET_AMX_BF16 = 6,
  LATHE_TARGET_NEON = 8,
  LATHE_TARGET_NEON_BF16 = 9
} lathe_target;

// base/precision.h.
typedef enum lathe_precision {
  LATHE_PRECISION_AUTO = 0,
  LATHE_PRECISION_BFLOAT16 = 1,
  LATHE_PRECISION_FLOAT32 = 2
} lathe_precision;

// The text of a status, ended by a zero byte.
typedef struct lathe_message {
  char text[320];
} lathe_message;

// Element (i0, i1, ...) is data[i0 * stride[0] + i1 * stride[1] + ...]; strides in elements. rank 0: not given,
// otherwise it must be the rank that the argument has. What a call only reads is not written, though data is
// no pointer to const.
typedef struct lathe_tensor {
  void* data;
  int32_t dtype;
  int32_t rank;
  int64_t extent[4];
  int64_t stride[4];
} lathe_tensor;

// Memory of the caller's: plan memory, workspace. Any alignment.
typedef struct lathe_buffer {
  void* data;
  size_t bytes;
} lathe_buffer;

// run(ctx, num_tasks, fn, arg) calls fn(arg, task) exactly once for each task in [0, num_tasks), on any threads,
// and returns after all have returned (base/executor.h). A null executor, or a null run: the calling thread.
typedef void (*lathe_task_fn)(void* arg, size_t task);
typedef struct lathe_executor {
  void* ctx;
  size_t num_workers;
  void (*run)(void* ctx, size_t num_tasks, lathe_task_fn fn, void* arg);
} lathe_executor;

// base/lse.h. `empty` counts where has_empty is not 0; else it is minus infinity.
typedef struct lathe_lse_policy {
  int32_t base2;
  int32_t has_empty;
  float empty;
} lathe_lse_policy;

// A dense row-major tensor of `rank` axes, at most 4, or of one, two or three axes.
static inline lathe_tensor lathe_packed(const void* data, int32_t dtype, int32_t rank,
                                        const int64_t* extent) {
  lathe_tensor tensor = {0, 0, 0, {0, 0, 0, 0}, {0, 0, 0, 0}};
  int64_t stride = 1;
  tensor.data = (void*)(uintptr_t)data;
  tensor.dtype = dtype;
  tensor.rank = rank;
  for (int32_t i = rank; i-- > 0; stride *= extent[i]) {
    tensor.extent[i] = extent[i];
    tensor.stride[i] = stride;
  }
  return tensor;
}
static inline lathe_tensor lathe_packed1(const void* data, int32_t dtype, int64_t n0) {
  return lathe_packed(data, dtype, 1, &n0);
}
static inline lathe_tensor lathe_packed2(const void* data, int32_t dtype, int64_t n0, int64_t n1) {
  const int64_t extent[2] = {n0, n1};
  return lathe_packed(data, dtype, 2, extent);
}
static inline lathe_tensor lathe_packed3(const void* data, int32_t dtype, int64_t n0, int64_t n1,
                                         int64_t n2) {
  const int64_t extent[3] = {n0, n1, n2};
  return lathe_packed(data, dtype, 3, extent);
}

// The version of the library, which may be another than that of the headers (lathe/version.h).
LATHE_C_API void lathe_version(int32_t* major, int32_t* minor, int32_t* patch);

// base/target.h. `name` and `reason` have static storage.
typedef struct lathe_target_info {
  size_t struct_size;
  int32_t target;
  int32_t compiled;
  int32_t runnable;
  int32_t native_bf16;
  const char* name;
  const char* reason;
} lathe_target_info;

// The targets that lathe knows, best first: lathe_get_target gives number `index` of lathe_num_targets(), and
// refuses others.
LATHE_C_API size_t lathe_num_targets(void);
LATHE_C_API int32_t lathe_get_target(size_t index, lathe_target_info* info, lathe_message* message);
// What LATHE_TARGET_AUTO means on this machine.
LATHE_C_API int32_t lathe_best_target(void);

// DeclineAmx, base/target.h: 1 where no permission for tiles was asked for, else 0.
LATHE_C_API int32_t lathe_decline_amx(void);

// What a record of `width` columns takes (docs/formats.md). A page of a dense cache is
// block_size * (record_bytes + side_bytes) bytes.
//
//   record_bytes      the least row_stride
//   side_bytes        of a token in the second part of its page; 0: pages have one part
//   fixed_width       columns that the format fixes; 0: any width will do
//   alignment         of data, block_stride and row_stride
//   has_tensor_scale  whether lathe_paged_cache.scale counts
typedef struct lathe_format_info {
  size_t struct_size;
  int64_t record_bytes;
  int64_t side_bytes;
  int64_t fixed_width;
  int64_t alignment;
  int32_t has_tensor_scale;
} lathe_format_info;

// RecordBytes and its kin of cache/formats.h. Refuses numbers that are no format, and widths that are not positive
// or not the format's.
LATHE_C_API int32_t lathe_get_format(int32_t format, int64_t width, lathe_format_info* info,
                                     lathe_message* message);

// Workspace that suffices for a call over an array of `count` structs, such as lathe_write_latent_caches.
LATHE_C_API size_t lathe_array_workspace_bytes(size_t count);

LATHE_C_END

#endif  // LATHE_CAPI_COMMON_H_
