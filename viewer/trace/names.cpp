// Names as JSON and tables have them, and the check that our enums are those of the schema.
#include <algorithm>
#include <array>
#include <vector>

#include "proto/trace.pb.h"
#include "viewer/trace/records.h"

namespace liveset::trace {
namespace {

constexpr std::array<std::string_view, phase_count> phase_names{"other", "forward", "loss", "backward", "recompute", "optimizer"};
static_assert(static_cast<int>(Phase::forward) == proto::PHASE_FORWARD && static_cast<int>(Phase::loss) == proto::PHASE_LOSS);
static_assert(static_cast<int>(Phase::backward) == proto::PHASE_BACKWARD && static_cast<int>(Phase::recompute) == proto::PHASE_RECOMPUTE);
static_assert(static_cast<int>(Phase::optimizer) == proto::PHASE_OPTIMIZER && phase_count == proto::Phase_ARRAYSIZE);

constexpr std::array<std::string_view, class_count> class_names{"none",
                                                                "parameter",
                                                                "gradient",
                                                                "optimizer_state",
                                                                "buffer",
                                                                "checkpoint_input",
                                                                "rng_state",
                                                                "activation",
                                                                "recomputed_activation",
                                                                "input",
                                                                "activation_gradient",
                                                                "communication",
                                                                "offloaded",
                                                                "loss",
                                                                "temporary",
                                                                "library",
                                                                "unattributed"};
static_assert(static_cast<int>(MemoryClass::parameter) == proto::CLASS_PARAMETER);
static_assert(static_cast<int>(MemoryClass::activation) == proto::CLASS_ACTIVATION);
static_assert(static_cast<int>(MemoryClass::loss) == proto::CLASS_LOSS);
static_assert(static_cast<int>(MemoryClass::unattributed) == proto::CLASS_UNATTRIBUTED && class_count == proto::MemoryClass_ARRAYSIZE);

static_assert(static_cast<int>(Kind::kernel) == proto::EVENT_KERNEL && static_cast<int>(Kind::out_of_memory) == proto::EVENT_OUT_OF_MEMORY);
static_assert(static_cast<int>(Kind::handle_create) == proto::EVENT_HANDLE_CREATE);
static_assert(static_cast<int>(Kind::import_end) == proto::EVENT_IMPORT_END);
static_assert(static_cast<int>(Kind::backward_end) == proto::EVENT_BACKWARD_END && static_cast<int>(Kind::phase) == proto::EVENT_PHASE);
static_assert(static_cast<int>(Kind::value_mutate) == proto::EVENT_VALUE_MUTATE && static_cast<int>(Kind::storage) == proto::EVENT_STORAGE);
static_assert(static_cast<int>(Kind::node_returned) == proto::EVENT_NODE_RETURNED && static_cast<int>(Kind::holder) == proto::EVENT_HOLDER);
static_assert(static_cast<int>(Kind::sequence) == proto::EVENT_SEQUENCE);
static_assert(static_cast<int>(ScopeKind::region) == proto::SCOPE_REGION && static_cast<int>(ScopeKind::module) == proto::SCOPE_MODULE);

constexpr std::size_t max_path_scopes = 4096;  // a file of a few bytes can nest scopes by the million
constexpr std::string_view cut_mark = "...";

bool inside_character(const std::string& text, std::size_t at) { return at < text.size() && (text[at] & 0xc0) == 0x80; }

std::string shortened(const std::string& path, bool from_root, std::size_t most) {
  if (from_root && path.size() <= most) return path;
  const std::size_t room = most - cut_mark.size();
  std::size_t head = from_root ? room / 2 : 0, tail = path.size() - std::min(path.size(), room - head);
  for (int i = 0; i < 3 && head > 0 && inside_character(path, head); ++i) --head;
  for (int i = 0; i < 3 && inside_character(path, tail); ++i) ++tail;
  return path.substr(0, head).append(cut_mark).append(path, tail);
}

std::string path_of(const Dictionary& dictionary, std::uint32_t scope, bool only_modules, std::string_view separator, std::size_t most) {
  std::vector<std::string_view> names;
  std::size_t bytes = 0;
  // A parent's id is smaller than its child's (the reader sees to that), so this ends.
  for (std::size_t steps = 0; scope != 0 && scope < dictionary.scopes.size(); scope = dictionary.scopes[scope].parent) {
    const Scope& entry = dictionary.scopes[scope];
    if (bytes > most || ++steps > max_path_scopes) break;
    if (only_modules && entry.kind != ScopeKind::module) continue;
    names.push_back(dictionary.string(entry.name));
    bytes += names.back().size() + separator.size();
  }
  std::string path;
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    if (name != names.rbegin()) path += separator;
    path += *name;
  }
  return shortened(path, scope == 0 || scope >= dictionary.scopes.size(), most);
}

}  // namespace

std::string_view phase_name(Phase phase) {
  const auto index = static_cast<std::size_t>(phase);
  return index < phase_names.size() ? phase_names[index] : "other";
}

std::string_view class_name(MemoryClass memory_class) {
  const auto index = static_cast<std::size_t>(memory_class);
  return index < class_names.size() ? class_names[index] : "none";
}

std::string_view kind_name(Kind kind) {
  switch (kind) {
    case Kind::none: return "none";
    case Kind::alloc: return "alloc";
    case Kind::free_requested: return "free_requested";
    case Kind::free_completed: return "free_completed";
    case Kind::free_unmatched: return "free_unmatched";
    case Kind::segment_alloc: return "segment_alloc";
    case Kind::segment_free: return "segment_free";
    case Kind::segment_map: return "segment_map";
    case Kind::segment_unmap: return "segment_unmap";
    case Kind::pool_create: return "pool_create";
    case Kind::pool_destroy: return "pool_destroy";
    case Kind::pool_trim: return "pool_trim";
    case Kind::host_alloc: return "host_alloc";
    case Kind::host_free: return "host_free";
    case Kind::host_register: return "host_register";
    case Kind::host_unregister: return "host_unregister";
    case Kind::out_of_memory: return "oom";
    case Kind::counter: return "counter";
    case Kind::kernel: return "kernel";
    case Kind::handle_create: return "handle_create";
    case Kind::handle_release: return "handle_release";
    case Kind::graph_alloc: return "graph_alloc";
    case Kind::graph_free: return "graph_free";
    case Kind::address_reserve: return "address_reserve";
    case Kind::address_free: return "address_free";
    case Kind::import_begin: return "import_begin";
    case Kind::import_end: return "import_end";
    case Kind::step_begin: return "step_begin";
    case Kind::step_end: return "step_end";
    case Kind::microbatch_begin: return "microbatch_begin";
    case Kind::microbatch_end: return "microbatch_end";
    case Kind::phase: return "phase";
    case Kind::scope_begin: return "scope_begin";
    case Kind::scope_end: return "scope_end";
    case Kind::attribute: return "attribute";
    case Kind::backward_begin: return "backward_begin";
    case Kind::backward_end: return "backward_end";
    case Kind::graph_node: return "graph_node";
    case Kind::node_begin: return "node_begin";
    case Kind::node_end: return "node_end";
    case Kind::node_returned: return "node_returned";
    case Kind::value_create: return "create";
    case Kind::value_retain: return "keep";
    case Kind::value_drop: return "drop";
    case Kind::value_use: return "use";
    case Kind::value_remake: return "rerun";
    case Kind::value_merge: return "merge";
    case Kind::value_release: return "release";
    case Kind::value_alias: return "alias";
    case Kind::value_offload: return "offload";
    case Kind::value_prefetch: return "prefetch";
    case Kind::value_mutate: return "mutate";
    case Kind::storage: return "storage";
    case Kind::collective: return "collective";
    case Kind::holder: return "holder";
    case Kind::sequence: return "sequence";
  }
  return "unknown";
}

std::string_view dtype_name(int dtype) {
  switch (dtype) {
    case proto::UINT8: return "uint8";
    case proto::INT8: return "int8";
    case proto::INT16: return "int16";
    case proto::INT32: return "int32";
    case proto::INT64: return "int64";
    case proto::FLOAT16: return "float16";
    case proto::FLOAT32: return "float32";
    case proto::FLOAT64: return "float64";
    case proto::COMPLEX32: return "complex32";
    case proto::COMPLEX64: return "complex64";
    case proto::COMPLEX128: return "complex128";
    case proto::BOOL: return "bool";
    case proto::BFLOAT16: return "bfloat16";
    case proto::FLOAT8_E5M2: return "float8_e5m2";
    case proto::FLOAT8_E4M3FN: return "float8_e4m3fn";
    case proto::FLOAT8_E5M2FNUZ: return "float8_e5m2fnuz";
    case proto::FLOAT8_E4M3FNUZ: return "float8_e4m3fnuz";
    case proto::UINT16: return "uint16";
    case proto::UINT32: return "uint32";
    case proto::UINT64: return "uint64";
    default: return "";
  }
}

std::string Dictionary::module_path(std::uint32_t scope, std::size_t most) const { return path_of(*this, scope, true, ".", most); }
std::string Dictionary::scope_path(std::uint32_t scope, std::size_t most) const { return path_of(*this, scope, false, "/", most); }

}  // namespace liveset::trace
