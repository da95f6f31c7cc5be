/* A program without CUDA asks whether there is any, in the ways in which programs do. Prints what it finds. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int main(void) {
  static const char* const names[] = {"cudaMalloc", "cuMemAlloc_v2", "cuGetProcAddress_v2", "cudaGetDriverEntryPoint"};
  for (unsigned i = 0; i < sizeof names / sizeof *names; ++i) {
    if (dlsym(RTLD_DEFAULT, names[i]) != NULL) printf("%s by RTLD_DEFAULT\n", names[i]);
    if (dlerror() == NULL) printf("%s: no error\n", names[i]);
    if (dlsym(dlopen(NULL, RTLD_NOW), names[i]) != NULL) printf("%s in the program\n", names[i]);
  }
  return 0;
}
