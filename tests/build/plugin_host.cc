// SPDX-License-Identifier: Apache-2.0
// CA3, CA4: two modules of one process keep to themselves, in both orders, loaded locally and globally: each is right,
// the table of targets lies in the module itself, and what was loaded locally is unloaded when it is closed. (Globally,
// what a later module takes of the standard library's templates may keep the earlier one.)
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace {

struct Module {
  const char* path;
  const char* entry;
  void* handle = nullptr;
};

[[noreturn]] void Fail(const char* what, const char* path) {
  std::printf("%s: %s\n", path, what);
  std::exit(1);
}

void Open(Module* module, int mode) {
  module->handle = dlopen(module->path, RTLD_NOW | mode);
  if (module->handle == nullptr) Fail(dlerror(), module->path);
}

void Check(const Module& module) {
  using Entry = const void* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(module.handle, module.entry));
  const void* targets = entry();
  if (targets == nullptr) Fail("computes wrongly", module.path);
  Dl_info info = {};
  if (dladdr(targets, &info) == 0 || std::strcmp(info.dli_fname, module.path) != 0)
    Fail("took another module's targets", module.path);
}

void Close(const Module& module, int mode) {
  dlclose(module.handle);
  if (mode == RTLD_LOCAL && dlopen(module.path, RTLD_NOW | RTLD_NOLOAD) != nullptr)
    Fail("is still there", module.path);
}

}  // namespace

int main(int, char** argv) {
  Module modules[2] = {{argv[1], "Plain"}, {argv[2], "WithFormats"}};
  for (const int mode : {RTLD_LOCAL, RTLD_GLOBAL}) {
    for (const int first : {0, 1}) {
      Module &a = modules[first], &b = modules[1 - first];
      Open(&a, mode);
      Open(&b, mode);
      Check(b);
      Check(a);
      Close(a, mode);
      Check(b);
      Close(b, mode);
    }
  }
  return 0;
}
