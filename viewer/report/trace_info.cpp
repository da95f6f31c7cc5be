#include "viewer/report/trace_info.h"

#include <array>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

namespace liveset::report {
namespace {

using nlohmann::ordered_json;

std::string command_line(const trace::Process& process) {
  std::string text;
  for (const std::string& argument : process.command) text += (text.empty() ? "" : " ") + argument;
  return text.empty() ? process.executable : text;
}

// Ticks per second over the whole recording, 0 when it was calibrated less than twice.
double ticks_per_second(const trace::Facts& facts) {
  if (facts.calibrations < 2 || facts.last_calibration->monotonic_ns <= facts.first_calibration->monotonic_ns) return 0;
  return 1e9 * static_cast<double>(facts.last_calibration->ticks - facts.first_calibration->ticks) /
         static_cast<double>(facts.last_calibration->monotonic_ns - facts.first_calibration->monotonic_ns);
}

const trace::HeapTotal* total_of(const trace::TraceFile& file, std::size_t heap) {
  if (file.chunks().empty()) return nullptr;
  for (const trace::HeapTotal& total : file.chunks().back().totals) {
    if (total.heap == heap) return &total;
  }
  return nullptr;
}

std::string per_event(std::uint64_t bytes, std::uint64_t events) {
  std::array<char, 32> buffer;
  std::snprintf(buffer.data(), buffer.size(), "%.4f", static_cast<double>(bytes) / static_cast<double>(std::max<std::uint64_t>(events, 1)));
  return buffer.data();
}

ordered_json process_json(const trace::Header& header) {
  const trace::Process& process = header.process;
  ordered_json json = {{"pid", process.pid},
                       {"parent_pid", process.parent_pid},
                       {"start_time", process.start_time},
                       {"exec_count", process.exec_count},
                       {"boot_id", process.boot_id},
                       {"host", process.host},
                       {"executable", process.executable},
                       {"command", process.command}};
  add_rank(process, json);
  return json;
}

ordered_json clock_json(const trace::Header& header, const trace::Facts& facts) {
  ordered_json json = {{"kind", clock_name(header.clock_kind)},
                       {"start_ticks", header.start_ticks},
                       {"start_monotonic_ns", header.start_monotonic_ns},
                       {"start_realtime_ns", header.start_realtime_ns},
                       {"calibrations", facts.calibrations}};
  if (ticks_per_second(facts) > 0) json["ticks_per_second"] = ticks_per_second(facts);
  return json;
}

ordered_json heaps_json(const trace::TraceFile& file) {
  const trace::Dictionary& names = file.dictionary();
  ordered_json json = ordered_json::array();
  for (std::size_t id = 1; id < names.heaps.size(); ++id) {
    const trace::Heap& heap = names.heaps[id];
    const std::string source = heap.source < names.sources.size() ? names.sources[heap.source].name : "";
    ordered_json entry = {{"name", names.string(heap.name)}, {"device", device_name(heap)}, {"source", source}};
    if (const trace::HeapTotal* total = total_of(file, id)) {
      entry["live_bytes"] = total->live_bytes;
      entry["live_blocks"] = total->live_blocks;
      entry["peak_bytes"] = total->peak_bytes;
      entry["peak_event"] = total->peak_event;
      if (total->has_allocator) {
        entry["allocator_total"] = total->allocator_total;
        entry["allocator_reserved"] = total->allocator_reserved;
        entry["baseline_bytes"] = total->baseline_bytes;
      }
    }
    json.push_back(std::move(entry));
  }
  return json;
}

// Nothing where it was recorded, or where its first chunk cannot be read: the health says that.
std::optional<ledger::Imported> imported_in(const trace::TraceFile& file) {
  Result<std::optional<ledger::Imported>> imported = ledger::find_imported(file);
  return imported ? std::move(*imported) : std::nullopt;
}

ordered_json health_json(const trace::TraceFile& file, const trace::Facts& facts) {
  const trace::Health& health = file.health();
  ordered_json losses = ordered_json::array();
  for (const trace::Loss& loss : health.losses) {
    losses.push_back({{"reason", loss_reason_name(loss.reason)},
                      {"events", loss.events},
                      {"before_event", loss.before_event},
                      {"time_ns", loss.time_ns}});
  }
  ordered_json json = {{"finished", health.has_footer},
                       {"truncated", health.truncated},
                       {"readable_bytes", health.readable_bytes},
                       {"unreadable_bytes", facts.unreadable_bytes},
                       {"damaged_packets", health.damaged_packets},
                       {"unknown_packets", health.unknown_packets},
                       {"lost_events", health.lost_events},
                       {"losses", losses},
                       {"note", health.note}};
  if (const std::optional<ledger::Imported> imported = imported_in(file)) {
    json["unknown_events"] = imported->unknown_events();
    json["contradictions"] = imported->contradictions();
  }
  if (!health.has_footer) return json;
  json["end"] = health.end;
  json["unmatched_frees"] = health.unmatched_frees;
  json["implied_frees"] = health.implied_frees;
  json["conservation_mismatches"] = health.conservation_mismatches;
  return json;
}

std::string opening_text(const trace::TraceFile& file, const trace::Facts& facts, const Style& style) {
  const trace::Header& header = file.header();
  const auto line = [&](const std::string& title, const std::string& text) {
    const std::size_t room = style.columns > 30 ? style.columns - 16 : 14;
    return "  " + title + std::string(14 - std::min<std::size_t>(14, title.size()), ' ') + printable(text, style, room) + "\n";
  };
  std::string text = printable(file.path(), style) + ": a liveset trace\n";
  text += line("format", std::to_string(header.format_major) + "." + std::to_string(header.format_minor) + ", written by liveset " +
                             header.tool_version);
  if (header.process.pid == 0 && header.process.command.empty()) {
    text += line("process", "not known");
  } else {
    text += line("process", command_line(header.process));
    text += line("", "pid " + std::to_string(header.process.pid) + ", child of " + std::to_string(header.process.parent_pid) + ", on " +
                         header.process.host);
  }
  if (const std::string rank = rank_text(header.process); !rank.empty()) text += line("rank", rank);
  text += line("began", utc_time(header.start_realtime_ns));
  text += line("lasted",
               format_time(file.end_time_ns()) + " to the last event" + (file.health().end.empty() ? "" : ", until: " + file.health().end));
  std::string clock(clock_name(header.clock_kind));
  if (const double rate = ticks_per_second(facts); rate > 0) {
    std::array<char, 64> buffer;
    std::snprintf(buffer.data(), buffer.size(), ", %.6f GHz, calibrated %llu times", rate / 1e9,
                  static_cast<unsigned long long>(facts.calibrations));
    clock += buffer.data();
  }
  text += line("clock", clock);
  text += line("events", format_count(file.events()) + " in " + counted(file.chunks().size(), "chunk", "chunks") + ", " +
                             counted(file.allocations(), "allocation", "allocations"));
  text += line("file",
               format_bytes(file.file_bytes(), style.exact_bytes) + ", " + per_event(file.file_bytes(), file.events()) + " bytes an event");
  return text;
}

// For people: what a source cannot see is read, not looked up, so none of it is cut.
std::string sources_text(const trace::TraceFile& file, const Style& style) {
  std::string text;
  const auto& sources = file.dictionary().sources;
  for (std::size_t id = 1; id < sources.size(); ++id) {
    text += "  source        " + wrapped(sources[id].name + " " + sources[id].version, style, 16) + "\n";
    text += "    covers      " + wrapped(sources[id].covers, style, 16) + "\n";
    if (!sources[id].cannot_see.empty()) text += "    cannot see  " + wrapped(sources[id].cannot_see, style, 16) + "\n";
  }
  return text;
}

Table sources_table(const trace::TraceFile& file, TableFormat format, const Style& style) {
  Table table({{"source"}, {"version"}, {"says"}, {"what"}}, format, style);
  const auto& sources = file.dictionary().sources;
  for (std::size_t id = 1; id < sources.size(); ++id) {
    table.row({Cell::words(sources[id].name), Cell::words(sources[id].version), Cell::words("covers"), Cell::words(sources[id].covers)});
    if (!sources[id].cannot_see.empty())
      table.row({Cell::words(""), Cell::words(""), Cell::words("cannot see"), Cell::words(sources[id].cannot_see)});
  }
  return table;
}

Table heaps_table(const trace::TraceFile& file, TableFormat format, const Style& style) {
  Table table({{"heap"}, {"device"}, {"peak", true}, {"at event", true}, {"at the end", true}, {"blocks", true}}, format, style);
  const trace::Dictionary& names = file.dictionary();
  for (std::size_t id = 1; id < names.heaps.size(); ++id) {
    const trace::HeapTotal* found = total_of(file, id);
    const trace::HeapTotal total = found == nullptr ? trace::HeapTotal{} : *found;
    table.row({Cell::words(names.string(names.heaps[id].name)), Cell::words(device_name(names.heaps[id])), Cell::bytes(total.peak_bytes),
               Cell::count(total.peak_event), Cell::bytes(total.live_bytes), Cell::count(total.live_blocks)});
  }
  return table;
}

Table packets_table(const trace::TraceFile& file, const trace::Facts& facts, TableFormat format, const Style& style) {
  Table table({{"packets"}, {"count", true}, {"size", true}, {"of the file", true}}, format, style);
  for (const trace::PacketFacts& packets : facts.packets) {
    table.row({Cell::words(packets.name), Cell::count(packets.packets), Cell::bytes(packets.bytes),
               Cell::percent(packets.bytes, file.file_bytes())});
  }
  if (facts.unreadable_bytes != 0) {
    table.row({Cell::words("unreadable"), Cell::words(""), Cell::bytes(facts.unreadable_bytes),
               Cell::percent(facts.unreadable_bytes, file.file_bytes())});
  }
  return table;
}

Table columns_table(const trace::TraceFile& file, const trace::Facts& facts, TableFormat format, const Style& style) {
  Table table({{"column"}, {"entries", true}, {"raw", true}, {"stored", true}, {"bytes an event", true}}, format, style);
  for (const trace::ColumnFacts& column : facts.columns) {
    table.row({Cell::words(column.name), Cell::count(column.entries), Cell::bytes(column.raw_bytes), Cell::bytes(column.stored_bytes),
               Cell::words(per_event(column.stored_bytes, file.events()))});
  }
  return table;
}

std::string health_text(const trace::TraceFile& file, const Style& style) {
  const trace::Health& health = file.health();
  const std::optional<ledger::Imported> imported = imported_in(file);
  const std::uint64_t contradictions = imported ? imported->contradictions() : 0;
  std::string text = "Health: ";
  text += contradictions != 0                              ? "what it was made of contradicts itself in " + counted(contradictions, "place")
          : health.note.empty() && health.lost_events == 0 ? "whole"
          : health.lost_events == 0                        ? "read in part"
                                                           : counted(health.lost_events, "event lost", "events lost");
  if (health.lost_names != 0) text += ", " + counted(health.lost_names, "name lost", "names lost");
  if (health.unknown_packets != 0) text += ", " + counted(health.unknown_packets, "packet", "packets") + " of a later version passed over";
  if (health.unmatched_frees != 0)
    text += ", " + counted(health.unmatched_frees, "free without its allocation", "frees without their allocation");
  if (health.implied_frees != 0) text += ", " + counted(health.implied_frees, "free", "frees") + " implied";
  if (health.conservation_mismatches != 0)
    text += ", " + counted(health.conservation_mismatches, "conservation mismatch", "conservation mismatches");
  text += "\n";
  for (const trace::Loss& loss : health.losses) {
    text += "  " + format_count(loss.events) + (loss.of_names() ? " names" : "") + " lost before event " + format_count(loss.before_event) +
            ", at " + format_time(loss.time_ns) + ": " + std::string(loss_reason_name(loss.reason)) + "\n";
  }
  if (!health.note.empty()) text += "  " + wrapped(health.note, style, 2) + "\n";
  if (imported) {
    for (const ledger::ImportedHeap& heap : imported->heaps)
      for (const std::string& contradiction : heap.contradictions)
        text += "  " + wrapped(heap.name + ": " + contradiction, style, 2) + "\n";
    if (const std::string unknown = unknown_events_text(*imported); !unknown.empty())
      text += "  " + wrapped(printable(unknown, style), style, 2) + "\n";
  }
  return text;
}

}  // namespace

std::string_view clock_name(int clock_kind) {
  constexpr std::array<std::string_view, 4> names{"unknown", "TSC", "CNTVCT", "CLOCK_MONOTONIC"};
  return clock_kind >= 0 && clock_kind < static_cast<int>(names.size()) ? names[static_cast<std::size_t>(clock_kind)] : names[0];
}

std::string_view loss_reason_name(int reason) {
  constexpr std::array<std::string_view, 6> names{"unknown", "ring_full", "no_memory", "disk_full", "dictionary_full", "collector_bug"};
  return reason >= 0 && reason < static_cast<int>(names.size()) ? names[static_cast<std::size_t>(reason)] : names[0];
}

std::string device_name(const trace::Heap& heap) {
  switch (heap.device_type) {
    case 0: return "cpu";
    case 1: return "cuda:" + std::to_string(heap.device_index);
    case 12: return "xpu:" + std::to_string(heap.device_index);
    case 20: return "private:" + std::to_string(heap.device_index);
    default: return "device " + std::to_string(heap.device_type) + ":" + std::to_string(heap.device_index);
  }
}

std::string utc_time(std::uint64_t realtime_ns) {
  const auto seconds = static_cast<std::time_t>(realtime_ns / 1'000'000'000);
  std::tm parts{};
  std::array<char, 64> buffer;
  if (realtime_ns == 0 || gmtime_r(&seconds, &parts) == nullptr) return "unknown";
  return {buffer.data(), std::strftime(buffer.data(), buffer.size(), "%Y-%m-%d %H:%M:%S UTC", &parts)};
}

ordered_json info_json(const trace::TraceFile& file, const trace::Facts& facts) {
  const trace::Header& header = file.header();
  ordered_json json = {{"schema", "liveset.info/1"},          {"file", file.path()},
                       {"file_bytes", file.file_bytes()},     {"format", {{"major", header.format_major}, {"minor", header.format_minor}}},
                       {"tool_version", header.tool_version}, {"process", process_json(header)},
                       {"clock", clock_json(header, facts)},  {"events", file.events()},
                       {"allocations", file.allocations()},   {"chunks", file.chunks().size()},
                       {"end_time_ns", file.end_time_ns()}};
  json["sources"] = ordered_json::array();
  for (std::size_t id = 1; id < file.dictionary().sources.size(); ++id) {
    const trace::Source& source = file.dictionary().sources[id];
    json["sources"].push_back(
        {{"name", source.name}, {"version", source.version}, {"covers", source.covers}, {"cannot_see", source.cannot_see}});
  }
  json["heaps"] = heaps_json(file);
  json["threads"] = ordered_json::array();
  for (std::size_t id = 1; id < file.dictionary().threads.size(); ++id) {
    json["threads"].push_back({{"tid", file.dictionary().threads[id].tid}, {"name", file.dictionary().threads[id].name}});
  }
  json["packets"] = ordered_json::object();
  for (const trace::PacketFacts& packets : facts.packets)
    json["packets"][packets.name] = {{"count", packets.packets}, {"bytes", packets.bytes}};
  json["columns"] = ordered_json::object();
  for (const trace::ColumnFacts& column : facts.columns) {
    json["columns"][column.name] = {{"entries", column.entries},
                                    {"raw_bytes", column.raw_bytes},
                                    {"stored_bytes", column.stored_bytes},
                                    {"chunks", column.chunks},
                                    {"constant_chunks", column.constant_chunks}};
  }
  json["health"] = health_json(file, facts);
  return json;
}

std::string info_text(const trace::TraceFile& file, const trace::Facts& facts, TableFormat format, const Style& style) {
  std::string text = format == TableFormat::text ? opening_text(file, facts, style) + "\n" + sources_text(file, style)
                                                 : sources_table(file, format, style).render();
  for (const Table& table :
       {heaps_table(file, format, style), packets_table(file, facts, format, style), columns_table(file, facts, format, style)})
    text += "\n" + table.render();
  return format == TableFormat::text ? text + "\n" + health_text(file, style) : text;
}

void add_rank(const trace::Process& process, ordered_json& json) {
  if (process.rank >= 0) json["rank"] = process.rank;
  if (process.world_size >= 0) json["world_size"] = process.world_size;
  if (process.local_rank >= 0) json["local_rank"] = process.local_rank;
}

std::string rank_text(const trace::Process& process) {
  if (process.rank < 0) return "";
  std::string text = std::to_string(process.rank);
  if (process.world_size >= 0) text += " of " + std::to_string(process.world_size);
  if (process.local_rank >= 0) text += ", local " + std::to_string(process.local_rank);
  return text;
}

std::string unknown_events_text(const ledger::Imported& imported) {
  const std::uint64_t events = imported.unknown_events();
  if (events == 0) return "";
  constexpr std::size_t shown = 8;
  std::string names;
  for (std::size_t i = 0; i < std::min(shown, imported.unknown_actions.size()); ++i)
    names += (i == 0 ? "" : ", ") + imported.unknown_actions[i];
  return counted(events, "event", "events") + " of a kind that is not known" + (names.empty() ? "" : " (" + names + ")") +
         (events == 1 ? " was passed over" : " were passed over");
}

void add_import_warnings(const std::optional<ledger::Imported>& imported, std::vector<std::string>& warnings) {
  if (!imported) return;
  for (const ledger::ImportedHeap& heap : imported->heaps)
    if (heap.contradiction_count != 0)
      warnings.push_back("the file contradicts itself: " + heap.contradictions.front() + "; `liveset summary` says more");
  if (const std::string unknown = unknown_events_text(*imported); !unknown.empty()) warnings.push_back(unknown);
}

void add_file_warnings(const trace::Health& health, std::vector<std::string>& warnings) {
  if (health.truncated || health.damaged_packets != 0) warnings.push_back("the file is incomplete: " + health.note);
  if (health.lost_events != 0) warnings.push_back(format_count(health.lost_events) + " events were lost");
}

}  // namespace liveset::report
