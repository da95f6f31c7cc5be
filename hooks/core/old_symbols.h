// Binds functions that glibc 2.34 moved into libc to the names they had before, so that a preload that was built on a new system
// loads on an old one. (dlsym is not among them: the preload has one of its own, hooks/driver/dlsym.cpp.) Include it in every file of the
// preload that calls one of them.
#pragma once
#if defined(LIVESET_PRELOAD) && defined(__x86_64__) && defined(__GLIBC__)
__asm__(".symver pthread_key_create,pthread_key_create@GLIBC_2.2.5");
__asm__(".symver pthread_setspecific,pthread_setspecific@GLIBC_2.2.5");
__asm__(".symver dlvsym,dlvsym@GLIBC_2.2.5");
__asm__(".symver dlerror,dlerror@GLIBC_2.2.5");
__asm__(".symver dlopen,dlopen@GLIBC_2.2.5");
__asm__(".symver dlclose,dlclose@GLIBC_2.2.5");
__asm__(".symver dladdr,dladdr@GLIBC_2.2.5");
#endif
