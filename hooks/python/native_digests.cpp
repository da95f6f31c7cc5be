// What tensors in host memory hold. The shim vouches for the address: it reads strided tensors of the CPU that it holds, and no others
// (liveset_shim/tensor_values.py).
#include <cstdio>
#include <cstring>

#include "hooks/core/recorder.h"
#include "hooks/python/hash.h"
#include "hooks/python/native_arguments.h"
#include "profiler/channel/layout.h"

namespace liveset::python {
namespace {

// A tensor in host memory: (address, item bytes, dimensions, size, stride, size, stride, ...), from argument `first` on.
bool take_strided(const Arguments& arguments, std::intptr_t first, Strided& tensor) {
  const std::uint64_t dimensions = arguments.number(first + 2);
  tensor.data = reinterpret_cast<const unsigned char*>(arguments.number(first));
  tensor.item_bytes = arguments.number(first + 1);
  if (tensor.data == nullptr || tensor.item_bytes == 0 || tensor.item_bytes > most_item_bytes || dimensions > most_dimensions) return false;
  tensor.dimensions = static_cast<int>(dimensions);
  for (int dimension = 0; dimension < tensor.dimensions; ++dimension) {
    tensor.sizes[dimension] = arguments.number(first + 3 + 2 * dimension);
    tensor.strides[dimension] = arguments.number(first + 4 + 2 * dimension);
  }
  return true;
}

// digest(address, item bytes, dimensions, size, stride, ...) -> XXH64 of the elements, as a signed number. The memory must be there.
Object* digest(Object*, Object* const* values, std::intptr_t count) {
  Strided tensor;
  return integer(take_strided(Arguments(values, count), 0, tensor) ? static_cast<std::int64_t>(hash(tensor)) : 0);
}

// write_elements(file descriptor, address, ...) -> whether all of the elements' bytes were written there, in order
Object* write_tensor(Object*, Object* const* values, std::intptr_t count) {
  const Arguments arguments(values, count);
  Strided tensor;
  return integer(take_strided(arguments, 1, tensor) && write_elements(tensor, static_cast<int>(arguments.number(0))) ? 1 : 0);
}

// figures(dtype, address, ...) -> text: hash, sum of squares, largest absolute (as the bits of doubles) and elements that are not
// finite, as hexadecimal numbers; only the hash where the type is no number
Object* tensor_figures(Object*, Object* const* values, std::intptr_t count) {
  const Arguments arguments(values, count);
  Strided tensor;
  if (!take_strided(arguments, 1, tensor)) return py->new_string("");
  const Figures found = figures(tensor, static_cast<int>(arguments.number(0)));
  const auto bits_of = [](double number) {
    unsigned long long copy = 0;
    std::memcpy(&copy, &number, sizeof copy);
    return copy;
  };
  char text[80];
  const unsigned long long hashed = hash(tensor);
  if (found.known) {
    std::snprintf(text, sizeof text, "%llx %llx %llx %llx", hashed, bits_of(found.sum_of_squares), bits_of(found.max_abs),
                  static_cast<unsigned long long>(found.not_finite));
  } else {
    std::snprintf(text, sizeof text, "%llx", hashed);
  }
  return py->new_string(text);
}

// bits(address, bytes) -> the first 8 bytes there, or fewer, as a signed number
Object* bits(Object*, Object* const* values, std::intptr_t count) {
  const Arguments arguments(values, count);
  const auto* address = reinterpret_cast<const void*>(arguments.number(0));
  const std::uint64_t bytes = arguments.number(1);
  std::int64_t found = 0;
  if (address != nullptr) std::memcpy(&found, address, bytes < sizeof found ? bytes : sizeof found);
  return integer(found);
}

// own(function) -> what function() returns; what torch allocates meanwhile is memory of ours, not the job's
Object* own(Object*, Object* const* values, std::intptr_t count) {
  if (count < 1) return none();
  constexpr char name[] = "liveset";
  core::begin_stating(channel::class_library, core::intern_string(name, sizeof name - 1));
  Object* result = py->call(values[0], nullptr);
  core::end_stating();
  return result;
}

MethodDefinition methods[] = {
    {"digest", digest, method_fastcall, nullptr},
    {"figures", tensor_figures, method_fastcall, nullptr},
    {"write_elements", write_tensor, method_fastcall, nullptr},
    {"bits", bits, method_fastcall, nullptr},
    {"own", own, method_fastcall, nullptr},
};

}  // namespace

NativeFunctions digest_functions() { return {methods, sizeof methods / sizeof *methods}; }

}  // namespace liveset::python
