// SPDX-License-Identifier: Apache-2.0
// The tensors of tests/golden/mla_v3.
#ifndef LATHE_EXAMPLES_SUPPORT_MLA_V3_H_
#define LATHE_EXAMPLES_SUPPORT_MLA_V3_H_

#include <cstdint>
#include <string>

#include "tests/support/npy.h"

namespace example {

struct MlaV3 {
  lathe::test::Npy<float> q, kv_c, k_pe, w_uv, out, lse;
  lathe::test::Npy<int32_t> rows;
};

inline MlaV3 ReadMlaV3() {
  using lathe::test::ReadNpy;
  const std::string folder = LATHE_GOLDEN_DIR "/mla_v3/";
  return {ReadNpy<float>(folder + "q.npy"),     ReadNpy<float>(folder + "kv_c.npy"),
          ReadNpy<float>(folder + "k_pe.npy"),  ReadNpy<float>(folder + "w_uv.npy"),
          ReadNpy<float>(folder + "out.npy"),   ReadNpy<float>(folder + "lse.npy"),
          ReadNpy<int32_t>(folder + "rows.npy")};
}

}  // namespace example

#endif  // LATHE_EXAMPLES_SUPPORT_MLA_V3_H_
