// SPDX-License-Identifier: Apache-2.0
// What every public function begins with. Each is defined where its operation's host side is, as
//
//   lathe::Status lathe::SelectTopk(const TopkArgs& args, ...) noexcept {
//     LATHE_BEGIN_CALL;
//     ...
//
// whose qualified name lets nothing be defined that the operation's header does not declare.
#ifndef LATHE_HOST_CALL_H_
#define LATHE_HOST_CALL_H_

#include "lathe/arch/float_flags.h"
#include "lathe/dispatch/registry.h"
#include "lathe/host/check.h"

// Names of detail are at hand; the caller's flags of floating-point exceptions stay as they are.
#define LATHE_BEGIN_CALL  \
  using namespace detail; \
  const arch::KeepFloatFlags keep

namespace lathe::detail {
namespace {

// What a call without a plan runs on.
inline Status StartCall(Target requested, const Executor& executor, const KernelTable** kernels) {
  LATHE_RETURN_IF_REFUSED(CheckExecutor(executor));
  return ResolveTarget(requested, kernels);
}

}  // namespace
}  // namespace lathe::detail

#endif  // LATHE_HOST_CALL_H_
