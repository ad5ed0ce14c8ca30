/* SPDX-License-Identifier: Apache-2.0 */
/* Two partial results that weigh the same are merged into their mean. Uses nothing of the mathematical library: what
 * lathe::c needs of it comes with lathe::c. */
#include <lathe/capi.h>
#include <stdio.h>

int main(void) {
  float outs[2][4] = {{1, 1, 1, 1}, {3, 3, 3, 3}}, lse[1] = {0}, out[4] = {0};
  char memory[4096];
  lathe_message message = {""};
  lathe_merge_part parts[2] = {{.struct_size = sizeof parts[0]}, {.struct_size = sizeof parts[0]}};
  for (int i = 0; i < 2; ++i) {
    parts[i].out = lathe_packed3(outs[i], LATHE_DTYPE_FLOAT32, 1, 1, 4);
    parts[i].lse = lathe_packed2(lse, LATHE_DTYPE_FLOAT32, 1, 1);
  }
  const lathe_merge_states_args args = {.struct_size = sizeof args,
                                        .parts = parts,
                                        .num_parts = 2,
                                        .out = lathe_packed3(out, LATHE_DTYPE_FLOAT32, 1, 1, 4)};
  const lathe_buffer workspace = {memory, sizeof memory};
  const int32_t status = lathe_merge_states(&args, NULL, workspace, NULL, &message);
  printf("%s: out[0] = %.3f\n", status == LATHE_STATUS_OK ? "ok" : message.text, (double)out[0]);
  return status == LATHE_STATUS_OK && out[0] > 1.999f && out[0] < 2.001f ? 0 : 1;
}
