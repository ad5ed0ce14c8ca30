// SPDX-License-Identifier: Apache-2.0
#include "bench/machine.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <set>
#include <thread>

#include "lathe/version.h"

namespace lathe::bench {
namespace {

constexpr size_t kAssumedLlcBytes = size_t{32} << 20;

// The first line, or "".
std::string ReadLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The value of the first "key : value" line of /proc/cpuinfo that has this key.
std::string CpuInfo(const std::string& key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (line.compare(0, key.size(), key) != 0 || colon == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    if (begin != std::string::npos) return line.substr(begin);
  }
  return "";
}

// "32768K" -> bytes.
size_t ParseSize(const std::string& text) {
  char* suffix = nullptr;
  const size_t number = std::strtoull(text.c_str(), &suffix, 10);
  switch (std::toupper(static_cast<unsigned char>(*suffix))) {
    case 'K':
      return number << 10;
    case 'M':
      return number << 20;
    default:
      return number;
  }
}

// From sysfs, because sysconf reports the caches of a whole AMD package as one.
void FindLastLevelCaches(Machine& machine) {
  int last_level = 0;
  std::set<std::string> seen;
  for (size_t cpu = 0;; ++cpu) {
    const std::string cache = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/index";
    if (ReadLine(cache + "0/level").empty()) break;
    for (int index = 0;; ++index) {
      const std::string path = cache + std::to_string(index);
      const int level = std::atoi(ReadLine(path + "/level").c_str());
      if (level == 0) break;
      if (level < last_level) continue;
      if (level > last_level) {
        last_level = level;
        machine.llc_bytes = machine.all_llc_bytes = 0;
        seen.clear();
      }
      if (!seen.insert(ReadLine(path + "/shared_cpu_list")).second) continue;
      const size_t bytes = ParseSize(ReadLine(path + "/size"));
      machine.llc_bytes = std::max(machine.llc_bytes, bytes);
      machine.all_llc_bytes += bytes;
    }
  }
#if defined(_SC_LEVEL3_CACHE_SIZE)
  if (machine.llc_bytes == 0) {
    machine.llc_bytes = static_cast<size_t>(std::max(0L, sysconf(_SC_LEVEL3_CACHE_SIZE)));
  }
#endif
  if (machine.llc_bytes == 0) machine.llc_bytes = kAssumedLlcBytes;
  machine.all_llc_bytes = std::max(machine.all_llc_bytes, machine.llc_bytes);
}

}  // namespace

Machine DescribeMachine() {
  Machine machine;
  machine.cpu = CpuInfo("model name");
  if (machine.cpu.empty()) machine.cpu = "unknown";
  machine.microcode = CpuInfo("microcode");
  machine.governor = ReadLine("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  machine.cores = std::max(1u, std::thread::hardware_concurrency());
  machine.memory_bytes = static_cast<size_t>(std::max(0L, sysconf(_SC_PHYS_PAGES))) *
                         static_cast<size_t>(std::max(0L, sysconf(_SC_PAGESIZE)));
  FindLastLevelCaches(machine);
  return machine;
}

const char* CompilerName() {
#if defined(__clang__)
  return __VERSION__;
#else
  return "GCC " __VERSION__;
#endif
}

std::string LatheVersion() {
  return std::to_string(LATHE_VERSION_MAJOR) + "." + std::to_string(LATHE_VERSION_MINOR) + "." +
         std::to_string(LATHE_VERSION_PATCH);
}

}  // namespace lathe::bench
