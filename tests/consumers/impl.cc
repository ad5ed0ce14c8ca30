// SPDX-License-Identifier: Apache-2.0
// The implementation as a file of a consumer's own program.
#include <lathe/impl.h>
