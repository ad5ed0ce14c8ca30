// SPDX-License-Identifier: Apache-2.0
// CA10: an exception that leaves the executor ends the process by std::terminate, before, amid or after its tasks; it is
// not lost, and no Status says ok.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <vector>

#include "lathe/easy.h"
#include "lathe/lathe.h"

namespace {

const char* place = "";

lathe::Executor Throwing() {
  lathe::Executor executor;
  executor.num_workers = 2;
  executor.run = [](void*, size_t num_tasks, lathe::Executor::TaskFn fn, void* arg) {
    if (place[0] == 'b') throw std::runtime_error("before the tasks");
    for (size_t task = 0; task < num_tasks; ++task) {
      fn(arg, task);
      if (place[0] == 'm') throw std::runtime_error("amid the tasks");
    }
    throw std::runtime_error("after the tasks");
  };
  return executor;
}

}  // namespace

int main(int, char** argv) {
  place = argv[1];
  std::set_terminate([] { std::_Exit(0); });
  constexpr int64_t kHeads = 4, kWidth = 64, kKeys = 4096, kBlockSize = 4096;
  const std::vector<float> cache(kKeys * kWidth), q(kHeads * kWidth);
  std::vector<float> out(kHeads * kWidth);
  const int32_t block_table[] = {0}, seq_lens[] = {kKeys};
  lathe::MlaDecodeOptions options;
  options.softmax_scale = 1.0f;
  lathe::MlaDecodeArgs args;
  args.q = lathe::Packed(q.data(), 1, kHeads, kWidth);
  args.keys.cache = lathe::LatentPages(cache.data(), 1, kBlockSize, kWidth);
  args.keys.block_table = lathe::Packed(block_table, 1, 1);
  args.keys.seq_lens = lathe::Packed(seq_lens, 1);
  args.out = lathe::Packed(out.data(), 1, kHeads, kWidth);
  try {
    const lathe::Status status =
        lathe::easy::MlaDecode({kHeads, kWidth, 0}, options, args, Throwing());
    std::printf("%s\n", lathe::Format(status).c_str());
  } catch (const std::exception&) {
    return 2;
  }
  return 1;
}
