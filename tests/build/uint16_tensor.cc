// SPDX-License-Identifier: Apache-2.0
// Does not compile, and is told what tensors hold and how words of an engine's own type are passed.
#include "lathe/lathe.h"

#ifdef LATHE_TEST_PAGES
auto F(unsigned short* words) { return lathe::LatentPages(words, 1, 64, 576); }
#else
lathe::In<2> F(unsigned short* words) { return lathe::Packed(words, 1, 576); }
#endif
