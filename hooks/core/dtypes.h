// What the hooks know of a tensor's types. (The shim has their names: DTYPES in liveset_shim/context.py. Tests compare both with
// proto/trace.proto.)
#pragma once
#include <cstdint>

namespace liveset::core {

enum class Elements : std::uint8_t { other, naturals, integers, halves, brains, reals, complex };

struct DType {
  std::uint8_t bytes;  // of an element; 0: of no type that the trace knows
  Elements elements;   // other: no numbers that are counted with
};

// By c10::ScalarType, which are the numbers of proto DType.
inline constexpr DType dtypes[] = {
    {1, Elements::naturals},  // uint8
    {1, Elements::integers},  // int8
    {2, Elements::integers},
    {4, Elements::integers},
    {8, Elements::integers},
    {2, Elements::halves},  // float16
    {4, Elements::reals},
    {8, Elements::reals},
    {4, Elements::other},  // complex32
    {8, Elements::complex},
    {16, Elements::complex},
    {1, Elements::naturals},  // bool
    {},
    {},
    {},
    {2, Elements::brains},  // bfloat16
    {},
    {},
    {},
    {},
    {},
    {},
    {},
    {1, Elements::other},  // float8_e5m2
    {1, Elements::other},
    {1, Elements::other},
    {1, Elements::other},
    {2, Elements::naturals},  // uint16
    {4, Elements::naturals},
    {8, Elements::naturals},
};

constexpr DType dtype(std::int64_t number) {
  constexpr std::int64_t count = sizeof dtypes / sizeof *dtypes;
  return number >= 0 && number < count ? dtypes[number] : DType{};
}

}  // namespace liveset::core
