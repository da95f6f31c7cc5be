// What `liveset info` says of a trace file: where it comes from, what it covers, and how it is made up.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "viewer/ledger/imported.h"
#include "viewer/report/text.h"
#include "viewer/trace/facts.h"
#include "viewer/trace/trace_file.h"

namespace liveset::report {

nlohmann::ordered_json info_json(const trace::TraceFile& file, const trace::Facts& facts);
// Text, or with TableFormat::md the tables alone.
std::string info_text(const trace::TraceFile& file, const trace::Facts& facts, TableFormat format, const Style& style);

// Place of a process in a distributed job: fields "rank", "world_size" and "local_rank", those that are known; "0 of 2, local 0", or "".
void add_rank(const trace::Process& process, nlohmann::ordered_json& json);
std::string rank_text(const trace::Process& process);

std::string_view clock_name(int clock_kind);       // "TSC", ...
std::string_view loss_reason_name(int reason);     // "ring_full", ...
std::string device_name(const trace::Heap& heap);  // "cuda:0", "cpu"
// "2026-01-31 12:00:00 UTC"
std::string utc_time(std::uint64_t realtime_ns);

// "3 events of a kind that is not known (noise) were passed over", or "".
std::string unknown_events_text(const ledger::Imported& imported);

// What every report warns of: a file that is incomplete, events that were lost.
void add_file_warnings(const trace::Health& health, std::vector<std::string>& warnings);
// ... and of what another tool's file contradicts itself in, and which of its events were passed over.
void add_import_warnings(const std::optional<ledger::Imported>& imported, std::vector<std::string>& warnings);

}  // namespace liveset::report
