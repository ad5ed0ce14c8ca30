// SPDX-License-Identifier: Apache-2.0
// The host side of every operation.
#ifndef LATHE_HOST_OPERATIONS_H_
#define LATHE_HOST_OPERATIONS_H_

#include "lathe/host/attend/merge_states.h"
#include "lathe/host/attend/mla_decode.h"
#include "lathe/host/attend/prefill.h"
#include "lathe/host/cache/latent_cache.h"
#include "lathe/host/cache/latent_gather.h"
#include "lathe/host/cache/page_copy.h"
#include "lathe/host/cache/record_copy.h"
#include "lathe/host/compressor/compressor.h"
#include "lathe/host/indexer/logits.h"
#include "lathe/host/indexer/topk.h"
#include "lathe/host/query_prep.h"
#include "lathe/host/topk/topk.h"

#endif  // LATHE_HOST_OPERATIONS_H_
