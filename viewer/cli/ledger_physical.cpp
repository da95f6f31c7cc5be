#include <iostream>
#include <nlohmann/json.hpp>

#include "viewer/cli/ledger.h"
#include "viewer/cli/traces.h"
#include "viewer/ledger/attribution.h"
#include "viewer/report/physical_rows.h"

namespace liveset::cli {
namespace {

using nlohmann::ordered_json;
using report::Cell;

Result<ledger::PhysicalLedger> build(const trace::TraceFile& file, const std::string& heap) {
  ProgressBar bar("reading " + file.path());
  ledger::PhysicalOptions options;
  options.progress = bar.callback();
  if (!heap.empty()) {
    Result<std::uint32_t> id = ledger::find_heap(file, heap);
    if (!id) return id.take_error();
    options.heap = *id;
  }
  Result<ledger::PhysicalLedger> physical = ledger::build_physical(file, options);
  if (!physical) return physical.take_error();
  Result<ledger::Attribution> attribution = ledger::attribute_blocks(file, *physical, {ledger::no_event, options.progress});
  if (!attribution) return attribution.take_error();
  return physical;
}

std::string hexadecimal(std::uint64_t address) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  do text.insert(text.begin(), digits[address & 15]);
  while ((address >>= 4) != 0);
  return "0x" + text;
}

std::string heap_name(const trace::TraceFile& file, std::uint32_t heap) {
  const trace::Dictionary& names = file.dictionary();
  return heap < names.heaps.size() ? std::string(names.string(names.heaps[heap].name)) : "";
}

// For a column of seven letters.
std::string_view short_name(trace::Kind kind) {
  switch (kind) {
    case trace::Kind::free_requested: return "free";
    case trace::Kind::free_completed: return "freed";
    case trace::Kind::free_unmatched: return "free ?";
    case trace::Kind::segment_alloc: return "segment";
    case trace::Kind::segment_free: return "seg end";
    case trace::Kind::segment_map: return "map";
    case trace::Kind::segment_unmap: return "unmap";
    case trace::Kind::out_of_memory: return "OOM";
    case trace::Kind::handle_create: return "handle";
    case trace::Kind::handle_release: return "release";
    case trace::Kind::graph_alloc: return "g alloc";
    case trace::Kind::graph_free: return "g free";
    case trace::Kind::address_reserve: return "reserve";
    case trace::Kind::address_free: return "unres.";
    case trace::Kind::import_begin: return "import";
    case trace::Kind::import_end: return "imp end";
    default: return trace::kind_name(kind);
  }
}

std::string class_text(trace::MemoryClass memory_class) {
  return memory_class == trace::MemoryClass::none ? "" : std::string(trace::class_name(memory_class));
}

std::string dump(const ordered_json& json) { return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace); }

}  // namespace

Status print_physical_ledger(const trace::TraceFile& file, const ledger::Range& range, const std::string& heap, Context& context) {
  Result<ledger::PhysicalLedger> ledger = build(file, heap);
  if (!ledger) return ledger.take_error();
  const trace::Dictionary& names = file.dictionary();
  const std::string shown = heap_name(file, ledger->shown_heap);
  const bool json = context.format == Format::json;
  report::Table table({{"event", true, 8},
                       {"kind", false, 7},
                       {"address", false, 14},
                       {"bytes", true, 11},
                       {"live", true, 5},
                       {"live bytes", true, 11},
                       {"where"}},
                      table_format(context), style_of(context));
  if (json)
    std::cout << "{\"schema\":\"liveset.ledger/1\",\"ledger\":\"physical\",\"file\":" << dump(file.path()) << ",\"heap\":" << dump(shown)
              << ",\"events\":[";
  else
    std::cout << table.render_titles();
  bool first = true;
  const auto show = [&](const report::PhysicalRow& row) {
    const std::string module = names.module_path(row.scope);
    if (json) {
      ordered_json entry = {
          {"event", row.event}, {"time_ns", row.time_ns}, {"kind", trace::kind_name(row.kind)}, {"phase", trace::phase_name(row.phase)}};
      entry["module"] = module.empty() ? ordered_json(nullptr) : ordered_json(module);
      entry["address"] = row.address;
      entry["bytes"] = row.size;
      entry["class"] =
          row.memory_class == trace::MemoryClass::none ? ordered_json(nullptr) : ordered_json(trace::class_name(row.memory_class));
      entry["live_blocks"] = row.live_blocks;
      entry["live_bytes"] = row.live_bytes;
      if (row.name != 0) entry["name"] = names.string(row.name);
      std::cout << (first ? "\n" : ",\n") << dump(entry);
    } else {
      std::cout << table.render_row({Cell::words(std::to_string(row.event)),
                                     Cell::words(context.format == Format::csv ? trace::kind_name(row.kind) : short_name(row.kind)),
                                     Cell::words(row.address == 0 ? "" : hexadecimal(row.address)), Cell::bytes(row.size),
                                     Cell::count(row.live_blocks), Cell::bytes(row.live_bytes),
                                     Cell::words((module.empty() ? std::string(trace::phase_name(row.phase)) : module) +
                                                 (row.name != 0 ? ": " + std::string(names.string(row.name)) : ""))});
    }
    first = false;
    return static_cast<bool>(std::cout);  // a closed pipe ends it
  };
  Status status = report::for_each_physical(file, *ledger, range, show);
  if (json) std::cout << "\n]}\n";
  return status;
}

Status print_address(const trace::TraceFile& file, const ledger::Range& range, std::uint64_t address, Context& context) {
  Result<ledger::PhysicalLedger> ledger = build(file, "");
  if (!ledger) return ledger.take_error();
  Result<std::vector<ledger::BlockDetail>> blocks = report::blocks_at_address(file, *ledger, address, range);
  if (!blocks) return blocks.take_error();
  const auto class_of = [&](const ledger::BlockDetail& block) { return ledger::class_of(*ledger->blocks.find(block.ordinal)); };
  if (context.format == Format::json) {
    ordered_json json = {{"schema", "liveset.ledger/1"},
                         {"ledger", "address"},
                         {"file", file.path()},
                         {"address", address},
                         {"blocks", ordered_json::array()}};
    for (const ledger::BlockDetail& block : *blocks) {
      const std::string module = file.dictionary().module_path(block.scope);
      ordered_json entry = {{"heap", heap_name(file, block.heap)},
                            {"address", block.address},
                            {"bytes", block.bytes},
                            {"class", class_text(class_of(block))}};
      entry["birth_event"] = block.birth;
      entry["death_event"] = block.death == ledger::no_event ? ordered_json(nullptr) : ordered_json(block.death);
      entry["birth_time_ns"] = block.birth_time_ns;
      entry["step"] = block.step ? ordered_json(*block.step) : ordered_json(nullptr);
      entry["phase"] = trace::phase_name(block.phase);
      entry["module"] = module.empty() ? ordered_json(nullptr) : ordered_json(module);
      json["blocks"].push_back(std::move(entry));
    }
    print_json(json);
    return Done{};
  }
  report::Table table({{"born", true}, {"freed", true}, {"heap"}, {"bytes", true}, {"class"}, {"step", true}, {"in"}, {"module"}},
                      table_format(context), style_of(context));
  for (const ledger::BlockDetail& block : *blocks)
    table.row({Cell::words(std::to_string(block.birth)), Cell::words(block.death == ledger::no_event ? "-" : std::to_string(block.death)),
               Cell::words(heap_name(file, block.heap)), Cell::bytes(block.bytes), Cell::words(class_text(class_of(block))),
               Cell::words(block.step ? std::to_string(*block.step) : "-"), Cell::words(trace::phase_name(block.phase)),
               Cell::words(file.dictionary().module_path(block.scope))});
  if (context.format == Format::table)
    std::cout << (blocks->empty() ? "No block held " : "Blocks that held ") << hexadecimal(address)
              << (blocks->empty() ? ".\n" : " (born, freed: events)\n");
  if (!blocks->empty() || context.format != Format::table) std::cout << table.render();
  return Done{};
}

}  // namespace liveset::cli
