// cudaGetDeviceProperties' structure, whose layout differs between CUDA 12 and 13.
#pragma once
#include <cstddef>

namespace standin {

// Fills the structure of this library's family from the device's attributes.
void fill_properties(void* properties, int device);

// For the test that compares with a toolkit's header: bytes of the structure, and where a field of an attribute begins (SIZE_MAX: it has
// none).
std::size_t size_of_properties(int family);
std::size_t place_in_properties(int family, int attribute);

}  // namespace standin
