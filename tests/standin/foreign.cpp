// Stands for a library of NVIDIA's own: only its name matters.
extern "C" int standin_foreign() { return 1; }
