// SPDX-License-Identifier: Apache-2.0
// The implementation, dispatched at run time. Exactly one .cc of a program has
//
//   #include <lathe/impl.h>
//
// and is compiled for the oldest CPU that the program shall run on (no -march of a newer one: the
// better targets come on top by themselves), or none has and the program links lathe::dispatch,
// which is this line as a library. All others include lathe/lathe.h. Needs Highway's headers and,
// when linking, libhwy.
//
//   undefined reference to `lathe::...'      no unit includes this file, nor is lathe::dispatch
//   linked multiple definition of `lathe::...'      more than one does
//
// Your own use of Highway in the same .cc stays as it is, whether it comes before, after or around.
// LATHE_DISABLED_TARGETS (dispatch/foreach_target.h) trades targets for compile time.
#ifndef LATHE_IMPL_H_
#define LATHE_IMPL_H_

#ifdef LATHE_STATIC_H_
#error "lathe/impl.h and lathe/static.h need translation units of their own"
#endif

#include "lathe/host/operations.h"
#include "lathe/lathe.h"

#endif  // LATHE_IMPL_H_
