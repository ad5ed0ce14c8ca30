// SPDX-License-Identifier: Apache-2.0
// lathe: paged latent-attention kernels for CPUs. The operations' declarations; nothing of SIMD. Exactly
// one translation unit of the program includes lathe/impl.h, or the program links lathe::dispatch.
#ifndef LATHE_LATHE_H_
#define LATHE_LATHE_H_

#include "lathe/compressor.h"
#include "lathe/indexer_logits.h"
#include "lathe/indexer_topk.h"
#include "lathe/latent_cache.h"
#include "lathe/merge_states.h"
#include "lathe/mla_decode.h"
#include "lathe/prefill.h"
#include "lathe/query_prep.h"
#include "lathe/sliding_window.h"
#include "lathe/sparse_mla.h"
#include "lathe/topk.h"
#include "lathe/v4_metadata.h"
#include "lathe/version.h"

#endif  // LATHE_LATHE_H_
