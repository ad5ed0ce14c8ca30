// SPDX-License-Identifier: Apache-2.0
// The program around the api_unit.cc: BestTarget is the first of Targets() that can run, a target
// that cannot is refused with its reason, and every unit's calls arrive.
#include <cstdio>
#include <cstring>

#include "lathe/lathe.h"

bool ApiUnit1();
bool ApiUnit2();

namespace {

bool BestIsFirstRunnable() {
  for (const lathe::TargetInfo& info : lathe::Targets())
    if (info.runnable) return lathe::BestTarget() == info.target;
  return false;
}

bool Refuses(lathe::Target target, const char* reason) {
  lathe::MlaShape shape;
  shape.num_heads = 1;
  lathe::MlaDecodeOptions options;
  options.softmax_scale = 1.0f;
  options.target = target;
  lathe::Limits limits;
  limits.max_num_seqs = limits.max_num_tokens = limits.max_num_keys = 1;
  lathe::Sizes sizes;
  const lathe::Status status = lathe::MlaDecodeSizes(shape, options, limits, &sizes);
  std::printf("%s\n", lathe::Format(status).c_str());
  return status.code == lathe::StatusCode::kTargetUnavailable &&
         std::strcmp(status.argument, "options.target") == 0 &&
         std::strcmp(status.reason, reason) == 0;
}

bool RefusesAllThatCannotRun() {
  int refused = 0;
  for (const lathe::TargetInfo& info : lathe::Targets()) {
    if (info.runnable != (info.reason[0] == '\0')) return false;
    if (info.runnable) continue;
    if (!Refuses(info.target, info.reason)) return false;
    ++refused;
  }
  // x86 and Arm are both in the list, so there is always one.
  return refused > 0 && Refuses(static_cast<lathe::Target>(99), "no such target");
}

}  // namespace

int main() {
  return BestIsFirstRunnable() && RefusesAllThatCannotRun() && ApiUnit1() && ApiUnit2() ? 0 : 1;
}
