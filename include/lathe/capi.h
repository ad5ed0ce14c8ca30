// SPDX-License-Identifier: Apache-2.0
// The C interface, C99: what lathe/lathe.h declares, for C and for languages that call C. One unit of the program
// includes lathe/capi_impl.h, or the program links the shared library lathe_c.
//
// Every function mirrors one of the C++ headers, every field the C++ field of its name, but for no_causal,
// no_check_indices and is_neox_style, which say the opposite of causal, check_indices and interleaved: shapes, rules,
// refusals and costs are those that stand there. Only what differs is said here.
//
// Structs. One that begins with struct_size may grow at its end; it is given by address, with struct_size set
// to its sizeof in the caller's build:
//
//   lathe_mla_decode_options options = {.struct_size = sizeof options};
//
// A library that knows more fields takes those past struct_size as not given; one that knows fewer accepts the
// rest as long as it is zero. Zero (or a null pointer) means "not given": the default, where there is one, or
// what the comment says. The fixed structs are lathe_tensor, lathe_buffer, lathe_executor, lathe_lse_policy and
// lathe_message.
//
// Results. Functions return a lathe_status; where they take a lathe_message it receives the text of a refusal,
// which names argument, value and rule, or "ok". `message`, `options` and `executor` may be null; a null `options`
// gives the defaults. Nothing allocates; nothing throws; a refused call has written nothing but the message.
#ifndef LATHE_CAPI_H_
#define LATHE_CAPI_H_

#include "lathe/capi/common.h"
#include "lathe/capi/compressor.h"
#include "lathe/capi/indexer.h"
#include "lathe/capi/keys.h"
#include "lathe/capi/latent_cache.h"
#include "lathe/capi/merge_states.h"
#include "lathe/capi/mla_decode.h"
#include "lathe/capi/plan.h"
#include "lathe/capi/prefill.h"
#include "lathe/capi/query_prep.h"
#include "lathe/capi/topk.h"
#include "lathe/capi/v4_metadata.h"

#endif  // LATHE_CAPI_H_
