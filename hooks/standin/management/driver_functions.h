// What NVML's stand-in asks the driver's, which it is linked to.
#pragma once

extern "C" {
int cuInit(unsigned flags);
int cuDeviceGetName(char* name, int bytes, int device);
int cuDeviceGetAttribute(int* value, int attribute, int device);
}

namespace standin {

inline bool name(char* text, int bytes, int device) { return cuInit(0) == 0 && cuDeviceGetName(text, bytes, device) == 0; }
inline int attribute(int number, int device) {
  int value = 0;
  return cuInit(0) == 0 && cuDeviceGetAttribute(&value, number, device) == 0 ? value : 0;
}

}  // namespace standin
