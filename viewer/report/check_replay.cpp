// The job's hooks compare (hooks/python/liveset_shim/replay_compare.py, replay_findings.py) and say what they found as attributes; here
// they are put together.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "viewer/report/check.h"
#include "viewer/trace/columns.h"
#include "viewer/trace/job_json.h"

namespace liveset::report {
namespace {

using nlohmann::ordered_json;
using trace::number_in;
using trace::text_in;

constexpr std::size_t most_findings = 10000;  // different ones; of more only the number is kept
constexpr std::string_view finding_key = "liveset.replay", coverage_key = "liveset.replay.coverage";

// A text is parsed once: hooks say the same text again where nothing is new.
class Collecting {
 public:
  Collecting(const trace::TraceFile& file, std::string shown_name, Check& check)
      : names_(file.dictionary()), shown_name_(std::move(shown_name)), check_(check) {}

  Status read(const trace::TraceFile& file) {
    for (std::size_t chunk = 0; chunk < file.chunks().size(); ++chunk) {
      if (Status status = file.read_chunk(chunk, 0, kinds_); !status) return status;
      if (!has(trace::Kind::attribute) && !has(trace::Kind::step_begin)) continue;
      Status status = trace::for_each_event(file, chunk, chunk + 1, [this](const trace::Event& event) {
        if (event.kind == trace::Kind::step_begin) {
          step_ = event.number;
          has_steps_ = true;
        }
        if (event.kind == trace::Kind::attribute) attribute(event);
        return true;
      });
      if (!status) return status;
    }
    return Done{};
  }
  bool found() const { return found_; }
  bool has_steps() const { return has_steps_; }

 private:
  bool has(trace::Kind kind) const {
    return std::find_if(kinds_.kind.begin(), kinds_.kind.end(),
                        [kind](std::uint8_t each) { return (each & 0x7f) == static_cast<std::uint8_t>(kind); }) != kinds_.kind.end();
  }

  void attribute(const trace::Event& event) {
    const std::string_view key = names_.string(event.name);
    if (key == finding_key) {
      found_ = true;
      finding(event.text);
    } else if (key == coverage_key) {
      found_ = true;
      coverage(event.text);
    }
  }

  void finding(std::uint32_t text) {
    const auto known = places_.find(text);
    if (known != places_.end()) {
      check_.left_out += known->second.more;
      if (known->second.finding == none) {
        ++check_.left_out;
      } else {
        ++check_.findings[known->second.finding].count;
      }
      return;
    }
    const ordered_json json = ordered_json::parse(names_.string(text), nullptr, false);
    if (!json.is_object()) {
      ++check_.left_out;  // cut off, or not ours: something was found, and what is not known
      if (places_.size() < 2 * most_findings) places_.emplace(text, Place{none, 0});
      return;
    }
    Finding finding{text_in(json, "kind"),
                    text_in(json, "region"),
                    text_in(json, "module"),
                    text_in(json, "op"),
                    text_in(json, "detail"),
                    shown_name_,
                    step_,
                    1};
    const std::uint64_t more = number_in(json, "more");
    check_.left_out += more;
    const auto [place, is_new] = same_.try_emplace({finding.kind, finding.region, finding.module, finding.op}, check_.findings.size());
    if (!is_new) {
      ++check_.findings[place->second].count;
    } else if (check_.findings.size() >= most_findings) {
      same_.erase(place);
      ++check_.left_out;
      if (places_.size() < most_findings) places_.emplace(text, Place{none, more});
      return;
    } else {
      check_.findings.push_back(std::move(finding));
    }
    if (places_.size() < 2 * most_findings) places_.emplace(text, Place{place->second, more});
  }

  void coverage(std::uint32_t text) {
    if (text != last_text_) {
      last_text_ = text;
      last_ = ordered_json::parse(names_.string(text), nullptr, false);
    }
    if (!last_.is_object()) return;
    for (auto item = last_.begin(); item != last_.end(); ++item) {
      if (item->is_number_unsigned()) add(item.key(), item->get<std::uint64_t>());
    }
    const auto list = last_.find("not_observed");
    if (list == last_.end() || !list->is_array()) return;
    for (const ordered_json& each : *list) {
      if (!each.is_string() || check_.not_observed.size() >= 100) continue;
      const std::string what = each.get<std::string>();
      if (std::find(check_.not_observed.begin(), check_.not_observed.end(), what) == check_.not_observed.end())
        check_.not_observed.push_back(what);
    }
  }

  void add(const std::string& name, std::uint64_t number) {
    if (name == "left_out") {
      check_.left_out += number;
      return;
    }
    for (auto& [known, sum] : check_.coverage) {
      if (known == name) {
        sum += number;
        return;
      }
    }
    if (check_.coverage.size() < 100) check_.coverage.emplace_back(name, number);
  }

  static constexpr std::size_t none = ~std::size_t{0};
  const trace::Dictionary& names_;
  std::string shown_name_;
  Check& check_;
  trace::Columns kinds_;
  struct Place {
    std::size_t finding = none;
    std::uint64_t more = 0;  // of the same, which the hooks only counted
  };
  std::map<std::uint32_t, Place> places_;  // by String id
  std::map<std::tuple<std::string, std::string, std::string, std::string>, std::size_t> same_;
  std::uint32_t last_text_ = ~std::uint32_t{0};
  ordered_json last_;
  std::int64_t step_ = -1;
  bool found_ = false, has_steps_ = false;
};

std::uint64_t figure(const Check& check, std::string_view name) {
  for (const auto& [known, number] : check.coverage) {
    if (known == name) return number;
  }
  return 0;
}

}  // namespace

Result<Check> check_replay(const std::vector<trace::TraceFile>& files) {
  Check check;
  check.name = "replay";
  bool found = false;
  std::vector<std::string> unchecked;
  for (const trace::TraceFile& file : files) {
    Collecting collecting(file, files.size() > 1 ? file.path() : std::string(), check);
    if (const Status status = collecting.read(file); !status) return status.error();
    found = found || collecting.found();
    if (!collecting.found() && collecting.has_steps()) unchecked.push_back(file.path());
  }
  if (!found)
    return Error{ErrorKind::usage,
                 files.empty() ? std::string() : files.front().path(),
                 {},
                 "was recorded without --check-replay, or no PyTorch ran",
                 "record it with: liveset run --check-replay -- python train.py"};
  for (std::string& path : unchecked) {
    Finding finding;
    finding.kind = "not_checked";
    finding.detail = "this trace has steps, and its hooks compared nothing";
    finding.file = std::move(path);
    check.findings.push_back(std::move(finding));
  }
  check.notes.push_back("compared: " + format_count(figure(check, "recomputes")) + " recomputes of " +
                        format_count(figure(check, "regions")) + " regions, " + format_count(figure(check, "values")) + " values (" +
                        format_bytes(figure(check, "value_bytes"), false) + "), " + format_count(figure(check, "operators")) +
                        " operators");
  if (const std::uint64_t skipped = figure(check, "not_sampled"); skipped != 0)
    check.notes.push_back(format_count(skipped) + " regions were left out by the sample rate");
  if (figure(check, "regions") == 0) check.notes.push_back("no region of torch.utils.checkpoint was seen: there was nothing to compare");
  return check;
}

}  // namespace liveset::report
