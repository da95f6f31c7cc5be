// cuDNN's backend interface, through which PyTorch runs convolutions and attention: a graph of operations, an engine that can run it, a
// plan with a workspace. A descriptor here keeps what it is given and gives it back; what only cuDNN would know is answered as "one
// engine, no notes, no knobs, workspace 0". The workspace is an assumption: real plans of convolutions may need much of it.
//
// A descriptor also remembers which kinds of operation it came from. The marks pass on to every descriptor that takes it as an
// attribute (operation -> graph -> engine -> configuration -> plan), so that the plan's answer can be labelled.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "hooks/standin/libraries/library.h"

using standin::success;

namespace {

constexpr int bad_parameter = 2000;

// Kinds of descriptors that say what is computed.
enum DescriptorType { convolution_forward = 10, convolution_backward_filter = 11, convolution_backward_data = 12 };
enum Mark : unsigned { marks_forward = 1, marks_backward_filter = 2, marks_backward_data = 4 };

enum ElementType {
  type_handle = 0,
  type_boolean = 2,
  type_int64 = 3,
  type_double = 5,
  type_pointer = 6,
  type_numerical_note = 11,
  type_descriptor = 15,
  type_behavior_note = 19,
  type_character = 24,
  type_fraction = 26,
};

enum Attribute {
  heuristic_results = 202,
  configuration_engine = 300,
  plan_workspace_bytes = 402,
  graph_engine_count = 802,
};

std::size_t element_bytes(int type) {
  switch (type) {
    case type_boolean:
    case type_character: return 1;
    case type_handle:
    case type_int64:
    case type_double:
    case type_pointer:
    case type_descriptor: return 8;
    case type_fraction: return 16;
    default: return 4;
  }
}

struct Descriptor;

struct Value {
  std::int64_t count = 0;
  std::vector<unsigned char> bytes;
  std::vector<std::shared_ptr<Descriptor>> descriptors;
};

struct Descriptor {
  int type = 0;
  unsigned marks = 0;
  std::map<int, Value> values;
};

unsigned marks_of(int descriptor_type) {
  switch (descriptor_type) {
    case convolution_forward: return marks_forward;
    case convolution_backward_filter: return marks_backward_filter;
    case convolution_backward_data: return marks_backward_data;
    default: return 0;
  }
}

std::int64_t assumed_workspace(unsigned marks) {
  if (marks & marks_backward_filter) {
    liveset_standin_estimate("convolution", "cuDNN plan: gradient of the filter");
  } else if (marks & marks_backward_data) {
    liveset_standin_estimate("convolution", "cuDNN plan: gradient of the input");
  } else if (marks & marks_forward) {
    liveset_standin_estimate("convolution", "cuDNN plan: forward");
  } else {
    liveset_standin_estimate("workspace", "cuDNN plan");
  }
  return 0;
}

// What was set: copies into the caller's array, as many elements as it has room for.
void give_back(const Value& value, int type, std::int64_t room, void* elements) {
  const auto count = static_cast<std::size_t>(std::min(room, value.count));
  if (type != type_descriptor) {
    std::memcpy(elements, value.bytes.data(), std::min(value.bytes.size(), count * element_bytes(type)));
    return;
  }
  auto** targets = static_cast<Descriptor**>(elements);
  for (std::size_t i = 0; i < std::min(count, value.descriptors.size()); i++) {
    if (targets[i]) *targets[i] = *value.descriptors[i];
  }
}

// What nobody set. Returns the number of elements that there are.
std::int64_t invent(const Descriptor& descriptor, int attribute, int type, std::int64_t room, void* elements) {
  const bool fills = room > 0 && elements;
  switch (type) {
    case type_descriptor:
      if (attribute != heuristic_results && attribute != configuration_engine) return 0;
      if (fills) {
        if (auto* target = static_cast<Descriptor**>(elements)[0]) target->marks |= descriptor.marks;
      }
      return 1;
    case type_numerical_note:
    case type_behavior_note: return 0;
    case type_int64:
      if (fills) {
        std::int64_t value = attribute == graph_engine_count ? 1 : 0;
        if (attribute == plan_workspace_bytes) value = assumed_workspace(descriptor.marks);
        std::memcpy(elements, &value, sizeof value);
      }
      return 1;
    default:
      if (fills) std::memset(elements, 0, element_bytes(type));
      return 1;
  }
}

}  // namespace

extern "C" {

int cudnnBackendCreateDescriptor(int type, Descriptor** descriptor) {
  if (!descriptor) return bad_parameter;
  *descriptor = new Descriptor;
  (*descriptor)->type = type;
  (*descriptor)->marks = marks_of(type);
  return success;
}

int cudnnBackendDestroyDescriptor(Descriptor* descriptor) {
  delete descriptor;
  return success;
}

int cudnnBackendInitialize(Descriptor* descriptor) { return descriptor ? success : bad_parameter; }
int cudnnBackendFinalize(Descriptor* descriptor) { return descriptor ? success : bad_parameter; }

int cudnnBackendSetAttribute(Descriptor* descriptor, int attribute, int type, std::int64_t count, const void* elements) {
  if (!descriptor || count < 0 || (count > 0 && !elements)) return bad_parameter;
  Value value;
  value.count = count;
  if (type == type_descriptor) {
    auto* const* given = static_cast<Descriptor* const*>(elements);
    for (std::int64_t i = 0; i < count; i++) {
      if (!given[i]) return bad_parameter;
      descriptor->marks |= given[i]->marks;
      value.descriptors.push_back(std::make_shared<Descriptor>(*given[i]));
    }
  } else {
    const auto* first = static_cast<const unsigned char*>(elements);
    value.bytes.assign(first, first + static_cast<std::size_t>(count) * element_bytes(type));
  }
  descriptor->values[attribute] = std::move(value);
  return success;
}

int cudnnBackendGetAttribute(Descriptor* descriptor, int attribute, int type, std::int64_t room, std::int64_t* count, void* elements) {
  if (!descriptor) return bad_parameter;
  const auto found = descriptor->values.find(attribute);
  if (found == descriptor->values.end()) {
    standin::answer(count, invent(*descriptor, attribute, type, room, elements));
    return success;
  }
  standin::answer(count, found->second.count);
  if (room > 0 && elements) give_back(found->second, type, room, elements);
  return success;
}

}  // extern "C"
