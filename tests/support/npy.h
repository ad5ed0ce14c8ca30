// SPDX-License-Identifier: Apache-2.0
// Reads the little-endian, C-order .npy files (format 1.0) of tests/golden. Used by tests and
// examples.
#ifndef LATHE_TESTS_SUPPORT_NPY_H_
#define LATHE_TESTS_SUPPORT_NPY_H_

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace lathe::test {

template <class T>
struct Npy {
  std::vector<int64_t> shape;
  std::vector<T> values;
};

// T must be the file's element type: float ('<f4') or int32_t ('<i4').
template <class T>
Npy<T> ReadNpy(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  constexpr size_t kPreamble = 10;  // magic, version, header length
  if (bytes.size() < kPreamble || bytes.compare(0, 8, std::string("\x93NUMPY\x01\0", 8)) != 0) {
    throw std::runtime_error("not an .npy 1.0 file: " + path);
  }
  const auto byte = [&bytes](size_t i) {
    return static_cast<size_t>(static_cast<uint8_t>(bytes[i]));
  };
  const size_t header_bytes = byte(8) + 256 * byte(9);
  const std::string header = bytes.substr(kPreamble, header_bytes);
  const char* wanted = sizeof(T) == sizeof(float) && T(0.5) != T(0) ? "'<f4'" : "'<i4'";
  if (header.find(wanted) == std::string::npos) {
    throw std::runtime_error(path + " does not hold " + wanted);
  }
  Npy<T> npy;
  size_t count = 1;
  const char* at = header.c_str() + header.find('(', header.find("'shape'")) + 1;
  while (*at != ')' && *at != '\0') {
    char* end = nullptr;
    const long long extent = std::strtoll(at, &end, 10);
    if (end == at) {
      ++at;
      continue;
    }
    npy.shape.push_back(extent);
    count *= static_cast<size_t>(extent);
    at = end;
  }
  if (bytes.size() != kPreamble + header_bytes + count * sizeof(T)) {
    throw std::runtime_error("truncated: " + path);
  }
  npy.values.resize(count);
  std::memcpy(npy.values.data(), bytes.data() + kPreamble + header_bytes, count * sizeof(T));
  return npy;
}

}  // namespace lathe::test

#endif  // LATHE_TESTS_SUPPORT_NPY_H_
