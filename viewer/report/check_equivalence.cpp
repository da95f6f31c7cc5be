#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "viewer/compare/equivalence.h"
#include "viewer/report/check.h"

namespace liveset::report {
namespace {

constexpr std::size_t most_findings = 20, most_names = 5;

std::string short_number(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", number);
  return text;
}

Finding finding_of(const compare::Difference& difference) {
  Finding finding;
  finding.kind = "value";
  finding.module = difference.a.name;
  finding.op = difference.a.what;
  finding.step = difference.a.step;
  finding.detail = difference.a.what + " of " + difference.a.dtype + ": ";
  if (!difference.reason.empty()) {
    finding.detail += difference.reason;
  } else {
    finding.detail += std::string(difference.exact ? "differs by " : "differs by at least ") + short_number(difference.largest) +
                      (difference.exact ? "" : " (from samples and norms)") + ", tolerance " + short_number(difference.tolerance);
  }
  return finding;
}

void add_names(Check& check, const char* kind, const std::vector<std::string>& names, const std::string& what) {
  if (names.empty()) return;
  Finding finding;
  finding.kind = kind;
  finding.detail = what + " " + std::to_string(names.size()) + ": ";
  for (std::size_t each = 0; each < std::min(names.size(), most_names); ++each) finding.detail += (each == 0 ? "" : "; ") + names[each];
  if (names.size() > most_names) finding.detail += "; ...";
  check.findings.push_back(finding);
}

}  // namespace

Result<Check> check_equivalence(const trace::TraceFile& a, const trace::TraceFile& b) {
  const Result<compare::Fingerprint> first = compare::read_fingerprint(a);
  if (!first) return first.error();
  const Result<compare::Fingerprint> second = compare::read_fingerprint(b);
  if (!second) return second.error();
  const compare::Equivalence found = compare::compare_fingerprints(*first, *second);
  Check check;
  check.name = "equivalence";
  std::uint64_t beyond = 0, measured_exactly = 0;
  double largest = 0, tolerance = 0;
  for (const compare::Difference& difference : found.differences) {
    measured_exactly += difference.exact;
    if (difference.largest >= largest) {
      largest = difference.largest;
      tolerance = difference.tolerance;
    }
    if (!difference.beyond) continue;
    if (++beyond <= most_findings) check.findings.push_back(finding_of(difference));
  }
  check.left_out = beyond > most_findings ? beyond - most_findings : 0;
  add_names(check, "missing", found.only_a, "only the first run has");
  add_names(check, "missing", found.only_b, "only the second run has");
  add_names(check, "unreadable", found.unreadable, "one of the runs could not read");
  if (const std::uint64_t lost = first->left_out + second->left_out; lost != 0) {
    Finding finding;
    finding.kind = "unreadable";
    finding.detail = format_count(lost) + " fingerprints are no text that can be read, or beyond the most that are compared";
    check.findings.push_back(finding);
  }
  if (found.other_order) {
    Finding finding;
    finding.kind = "order";
    finding.detail = "the same tensors come in another order: the models are built or called differently";
    check.findings.push_back(finding);
  }
  if (found.compared == 0 && check.findings.empty()) {
    Finding finding;
    finding.kind = "missing";
    finding.detail = "neither run has a loss, a gradient or a parameter to compare";
    check.findings.push_back(finding);
  }
  check.coverage = {{"compared", found.compared},
                    {"bitwise_equal", found.bitwise_equal},
                    {"unreadable", found.unreadable.size()},
                    {"measured_exactly", measured_exactly},
                    {"not_finite_a", found.not_finite_a},
                    {"not_finite_b", found.not_finite_b},
                    {"reduction_length", found.reduction_length}};
  check.notes.push_back("compared: " + format_count(found.compared) + " tensors, " + format_count(found.bitwise_equal) +
                        " of them equal bit for bit");
  check.lower_bound = measured_exactly != found.differences.size();
  if (!found.differences.empty()) {
    check.notes.push_back("largest difference: " + std::string(measured_exactly == found.differences.size() ? "" : "at least ") +
                          short_number(largest) + ", tolerance of that tensor " + short_number(tolerance));
    check.notes.push_back("tolerance: eps(dtype) x sqrt(" + format_count(found.reduction_length) +
                          ") x largest element; the root is of the terms of a sum: rows into the model x longest side of a parameter");
    if (measured_exactly != found.differences.size())
      check.notes.push_back("differences are lower bounds, from samples and norms; run --fingerprint-values makes them exact");
  }
  if (found.not_finite_a != 0 || found.not_finite_b != 0)
    check.notes.push_back("elements that are not finite: " + format_count(found.not_finite_a) + " and " + format_count(found.not_finite_b));
  return check;
}

}  // namespace liveset::report
