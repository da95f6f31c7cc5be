// Where in its step something happens, in words that another run of the same job has too: the step, the phase, the module, and the node
// of backward, which are told apart by how many of their name the step has run before.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "viewer/ledger/physical.h"

namespace liveset::ledger {

// The CUDA allocator's smallest unit. Sizes that it rounds to the same are one size.
inline constexpr std::uint64_t size_unit = 512;
constexpr std::uint64_t size_units(std::uint64_t bytes) { return bytes / size_unit + (bytes % size_unit != 0); }

// Blocks are counted by phase of the step, forward and loss as one.
constexpr trace::Phase counted_phase(trace::Phase phase) { return phase == trace::Phase::loss ? trace::Phase::forward : phase; }

struct Place {
  std::optional<std::int64_t> step;  // its number
  std::uint64_t step_index = 0;      // among the trace's steps
  trace::Phase phase = trace::Phase::other;
  std::string module, node;       // node: of backward, or an op of a model
  std::uint32_t node_number = 0;  // which of its name in the step, from 1; 0: there is no node
};

struct PlacedEvent {
  std::uint64_t time_ns = 0;
  Place place;
  // Of each of the blocks that were asked for: which block of its size (rounded as the CUDA allocator does) its module had made in the
  // step and counted_phase, from 1. 0: made before the step, made while a node ran, or not counted.
  std::vector<std::uint32_t> orders;
};
// `ordinals` rise. Reads the step of `event`; all before it where it lies in none.
Result<PlacedEvent> place_of(const trace::TraceFile& file, const PhysicalLedger& ledger, std::uint64_t event,
                             std::span<const std::uint32_t> ordinals);

// By what another run's place was found: the closest that it shares.
enum class FoundBy : std::uint8_t { nothing, step, phase, module, node };
std::string_view found_by_name(FoundBy found_by);

struct FoundPlace {
  std::uint64_t event = no_event;
  FoundBy by = FoundBy::nothing;
  std::optional<std::uint64_t> reserved;  // by the allocator's own account
};
// The highest moment of the shown heap's blocks at that place: of the step of that number (else of the place's index, else the last),
// in its phase, in that module or node. by = nothing: the trace has no event.
Result<FoundPlace> find_place(const trace::TraceFile& file, const PhysicalLedger& ledger, const Place& place);

}  // namespace liveset::ledger
