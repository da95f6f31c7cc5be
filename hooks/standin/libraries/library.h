// What the bodies of the stand-in libraries share. Only functions that a job cannot do without stand in this folder; the others get
// a generated body (hooks/standin/generate.py), and one written here takes its place when it has the same name.
//
// Exported functions are declared by us: arguments by their size and kind, enumerations as int, handles as pointers to our own types.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <type_traits>

#include "hooks/standin/interface.h"

extern "C" {
// Made with every library from its list of names.
extern const int liveset_standin_family;      // major version of CUDA
extern const int liveset_standin_release[4];  // version of the wheel that the names are of
}

namespace standin {

constexpr int success = 0;
constexpr int bad_handle = 1;  // stands for "not initialized" in each of these libraries

// The version number as a library states it: 10000 or 1000 per major version, 100 per minor one.
inline int release_number(int major_factor) {
  return liveset_standin_release[0] * major_factor + liveset_standin_release[1] * 100 + liveset_standin_release[2];
}

inline int answer_release(int major_factor, int* version) {
  if (version) *version = release_number(major_factor);
  return success;
}

// The libraries' GetProperty: 0 major, 1 minor, 2 patch.
inline int answer_property(int property, int* value) {
  if (property < 0 || property > 2 || !value) return bad_handle;
  *value = liveset_standin_release[property];
  return success;
}

inline std::size_t runtime_version() { return liveset_standin_family >= 13 ? 13000 : 12080; }

// A zeroed descriptor of the caller. The generated ...Destroy functions free() it, which is why it must be plain data.
template <class Descriptor>
int create(Descriptor** descriptor) {
  static_assert(std::is_trivially_destructible_v<Descriptor>);
  if (!descriptor) return bad_handle;
  *descriptor = static_cast<Descriptor*>(std::calloc(1, sizeof(Descriptor)));
  return *descriptor ? success : bad_handle;
}

// For ...Get functions, whose outputs may be left out.
template <class Value>
void answer(Value* where, std::type_identity_t<Value> value) {
  if (where) *where = value;
}

}  // namespace standin
