// What `liveset check` says: named gates, each with what it found. A gate without findings is passed.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

#include "viewer/report/text.h"
#include "viewer/trace/trace_file.h"

namespace liveset::report {

struct Finding {
  std::string kind, region, module, op, detail;
  std::string file;        // whose trace; empty when the run has one only
  std::int64_t step = -1;  // the first in which it was found; -1: outside of any
  std::uint64_t count = 1;
};

struct Check {
  std::string name;
  std::vector<Finding> findings;
  std::uint64_t left_out = 0;      // findings that are not listed
  std::vector<std::string> notes;  // what was compared, and what could not be
  // Figures of the coverage, for JSON: name and number.
  std::vector<std::pair<std::string, std::uint64_t>> coverage;
  std::vector<std::string> not_observed;
  bool lower_bound = false;  // passed, or failed, by figures of which some are only bounds from below: passing shows no equality
  bool ok() const { return findings.empty() && left_out == 0; }
};

// What `run --check-replay` found. An error when none of the traces was recorded with it.
Result<Check> check_replay(const std::vector<trace::TraceFile>& files);

// Whether two runs of `run --fingerprint` computed the same.
Result<Check> check_equivalence(const trace::TraceFile& a, const trace::TraceFile& b);

nlohmann::ordered_json check_json(const std::vector<Check>& checks);
// Of each check the first `top` findings.
std::string check_text(const std::vector<Check>& checks, std::size_t top, const Style& style);
// One line a finding.
std::string check_table(const std::vector<Check>& checks, TableFormat format, const Style& style);

}  // namespace liveset::report
