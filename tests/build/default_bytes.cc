// SPDX-License-Identifier: Apache-2.0
// CA7: what a caller gets from the public headers under its own flags: the bytes of every struct as it is by default.
// Compiled twice, plain and with -ffast-math; caller_flags.cc compares.
#include <cstring>
#include <new>
#include <vector>

#include "lathe/lathe.h"

namespace {

template <class T>
void Append(std::vector<unsigned char>* bytes) {
  alignas(T) unsigned char memory[sizeof(T)] = {};
  new (memory) T;
  bytes->insert(bytes->end(), memory, memory + sizeof(T));
}

}  // namespace

std::vector<unsigned char> LATHE_TEST_ENTRY() {
  std::vector<unsigned char> bytes;
  Append<lathe::LsePolicy>(&bytes);
  Append<lathe::KeySet>(&bytes);
  Append<lathe::RowTransform>(&bytes);
  Append<lathe::MlaDecodeOptions>(&bytes);
  Append<lathe::PrefillOptions>(&bytes);
  Append<lathe::MergeStatesOptions>(&bytes);
  Append<lathe::LatentWriteOptions>(&bytes);
  Append<lathe::LatentGatherOptions>(&bytes);
  Append<lathe::IndexerLogitsOptions>(&bytes);
  Append<lathe::IndexerTopkOptions>(&bytes);
  Append<lathe::TopkOptions>(&bytes);
  Append<lathe::QueryPrepOptions>(&bytes);
  Append<lathe::CompressorOptions>(&bytes);
  Append<lathe::CompressedMergeOptions>(&bytes);
  Append<lathe::MlaDecodeArgs>(&bytes);
  Append<lathe::PrefillArgs>(&bytes);
  Append<lathe::LatentWriteArgs>(&bytes);
  Append<lathe::LatentGatherArgs>(&bytes);
  Append<lathe::IndexerInputs>(&bytes);
  Append<lathe::QueryPrepArgs>(&bytes);
  return bytes;
}
