/* A program without CUDA asks whether there is any, in the ways in which programs do. Prints what it finds, and should not.
   With an argument: the same where a library with CUDA was opened for nobody but whoever opened it, and then for everybody. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

/* Not null under a preload that exports it; then it says that there is no device. */
__attribute__((weak)) int cudaMalloc(void** out, size_t bytes);
#define NO_DEVICE 100

static const char* const names[] = {"cudaMalloc", "cuMemAlloc_v2", "cuGetProcAddress_v2", "cudaGetDriverEntryPoint"};

static void ask(void) {
  for (unsigned i = 0; i < sizeof names / sizeof *names; ++i) {
    if (dlsym(RTLD_DEFAULT, names[i]) != NULL) printf("%s by RTLD_DEFAULT\n", names[i]);
    if (dlerror() == NULL) printf("%s: no error\n", names[i]);
    if (dlsym(dlopen(NULL, RTLD_NOW), names[i]) != NULL) printf("%s in the program\n", names[i]);
  }
}

int main(int count, char** words) {
  void* address = NULL;
  if (count > 1) {
    if (dlopen("libcudart.so.13", RTLD_NOW | RTLD_LOCAL) == NULL || dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) == NULL)
      printf("%s\n", dlerror());
    ask();
    if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD) == NULL) printf("%s\n", dlerror());
    if (dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") == NULL) printf("%s\n", dlerror());
    if (dlsym(RTLD_DEFAULT, "cudaMalloc") != NULL) printf("one that is still local\n");
    return 0;
  }
  ask();
  if (cudaMalloc != NULL && cudaMalloc(&address, 1) != NO_DEVICE) printf("the weak one works\n");
  return 0;
}
