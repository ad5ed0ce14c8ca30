// SPDX-License-Identifier: Apache-2.0
// The host side of every operation.
#ifndef LATHE_DISPATCH_HOST_H_
#define LATHE_DISPATCH_HOST_H_

#include "lathe/dispatch/host_compressor.h"
#include "lathe/dispatch/host_indexer_logits.h"
#include "lathe/dispatch/host_indexer_topk.h"
#include "lathe/dispatch/host_latent_cache.h"
#include "lathe/dispatch/host_latent_gather.h"
#include "lathe/dispatch/host_merge_states.h"
#include "lathe/dispatch/host_mla_decode.h"
#include "lathe/dispatch/host_page_copy.h"
#include "lathe/dispatch/host_prefill.h"
#include "lathe/dispatch/host_query_prep.h"
#include "lathe/dispatch/host_topk.h"

#endif  // LATHE_DISPATCH_HOST_H_
