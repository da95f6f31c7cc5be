#include "viewer/report/estimates.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "viewer/trace/job_json.h"

namespace liveset::report {
namespace {

using nlohmann::ordered_json;
using trace::number_in;
using trace::text_in;

// The stand-in knows some hundred; a trace that states more is none of its.
constexpr std::size_t most_estimates = 1000, shown_estimates = 30;

struct Kind {
  const char* what;
  Reach reach;
  const char* why;
};
// The names that hooks/standin says (liveset_standin_estimate), and one that the names of parameters tell.
constexpr std::array<Kind, 10> kinds = {{
    {"device_value_read", Reach::none,
     "the job read a value from the device; kernels compute nothing here (unless the program brings host twins of them), so it got 0 or "
     "what a copy had put there. Nothing changes unless "
     "the job decides by it"},
    {"dynamic_shape", Reach::allocator, "a size depends on values on the device, which are not there"},
    {"workspace", Reach::allocator, "a library was asked how much scratch memory it wants; the answer is an assumption, mostly 0"},
    {"convolution", Reach::allocator, "cuDNN chooses a convolution's algorithm and its scratch memory by the GPU; here it is given none"},
    {"collective", Reach::allocator,
     "collectives take no time and act as if all ranks held equal data. Blocks that wait for them are freed earlier or later than on a "
     "GPU"},
    {"side_stream_free", Reach::allocator, "a block used on a second stream is free when the work there is done; work takes no time here"},
    {"library_memory", Reach::outside, "what a library takes from the driver for itself is an assumption"},
    {"compiled", Reach::allocator, "what torch.compile fuses and tunes follows measurements, which say nothing here"},
    {"unknown_function", Reach::allocator,
     "a function without a stand-in was called; it did nothing. The driver, the runtime and NVML answered that it is not supported, other "
     "libraries that all is well"},
    {"context_bytes", Reach::outside, "what the context of this GPU takes is an assumption of its profile"},
}};

const Kind* find_kind(const std::string& what) {
  const auto found = std::find_if(kinds.begin(), kinds.end(), [&](const Kind& kind) { return what == kind.what; });
  return found == kinds.end() ? nullptr : &*found;
}

std::vector<std::string> texts_in(const ordered_json& json, const char* key) {
  std::vector<std::string> texts;
  const auto found = json.find(key);
  if (found == json.end() || !found->is_array()) return texts;
  for (const ordered_json& each : *found) {
    if (each.is_string()) texts.push_back(each.get<std::string>());
  }
  return texts;
}

void take_device(const ordered_json& json, DryRun& dry_run) {
  dry_run.gpu = text_in(json, "gpu");
  dry_run.name = text_in(json, "name");
  dry_run.capability = static_cast<int>(std::min<std::uint64_t>(number_in(json, "capability"), 9999));
  dry_run.memory_bytes = number_in(json, "memory_bytes");
  dry_run.context_bytes = number_in(json, "context_bytes");
  dry_run.devices = static_cast<std::int64_t>(std::min<std::uint64_t>(number_in(json, "devices"), 1U << 20));
  dry_run.world = static_cast<std::int64_t>(std::min<std::uint64_t>(number_in(json, "world"), 1U << 30));
  dry_run.backing = text_in(json, "backing");
  dry_run.assumed = texts_in(json, "assumed");
}

Estimate estimate_in(const ordered_json& json) {
  Estimate estimate;
  estimate.what = text_in(json, "what");
  estimate.detail = text_in(json, "detail");
  estimate.count = number_in(json, "count");
  estimate.first = texts_in(json, "first");
  const Kind* kind = find_kind(estimate.what);
  estimate.why = kind != nullptr ? kind->why : "the stand-in calls it an estimate; this version does not know why";
  estimate.reach = kind != nullptr ? kind->reach : Reach::allocator;
  return estimate;
}

class Collecting {
 public:
  explicit Collecting(const trace::Dictionary& names) : names_(names), was_read_(names.strings.size()) {}

  void attribute(const trace::Event& event) {
    const std::string_view key = names_.string(event.name);
    const bool is_device = key == "standin.device";
    if ((!is_device && key != "standin.estimate") || event.text >= was_read_.size()) return;
    if (was_read_[event.text]) return;  // a text says the same each time
    was_read_[event.text] = true;
    const ordered_json json = ordered_json::parse(names_.string(event.text), nullptr, false);
    if (!json.is_object()) return;
    found_ = true;
    is_device ? take_device(json, out_) : take(estimate_in(json));
  }
  void take(Estimate estimate) {
    if (estimate.what.empty()) return;
    const auto place = places_.find({estimate.what, estimate.detail});
    if (place != places_.end()) {
      Estimate& known = out_.estimates[place->second];
      known.count = std::max(known.count, estimate.count);  // the last one, unless two threads said theirs at once
      if (known.first.empty()) known.first = std::move(estimate.first);
    } else if (out_.estimates.size() >= most_estimates) {
      ++out_.left_out;
    } else {
      places_.try_emplace({estimate.what, estimate.detail}, out_.estimates.size());
      out_.estimates.push_back(std::move(estimate));
    }
  }
  bool found() const { return found_; }
  DryRun& out() { return out_; }

 private:
  const trace::Dictionary& names_;
  std::vector<bool> was_read_;  // by String id
  std::map<std::pair<std::string, std::string>, std::size_t> places_;
  DryRun out_;
  bool found_ = false;
};

bool has_string(const trace::TraceFile& file, std::string_view text) {
  const auto& strings = file.dictionary().strings;
  return std::find(strings.begin(), strings.end(), text) != strings.end();
}

// torch.compile(module) gives parameters such a name.
bool has_compiled_module(const trace::TraceFile& file) {
  const auto& strings = file.dictionary().strings;
  return std::any_of(strings.begin(), strings.end(), [](const std::string& text) { return text.find("_orig_mod.") != std::string::npos; });
}

// What was compared with real GPUs were models: neither programs without PyTorch nor jobs without a module.
bool has_modules(const trace::TraceFile& file) {
  const auto& sources = file.dictionary().sources;
  const auto& scopes = file.dictionary().scopes;
  return std::any_of(sources.begin(), sources.end(), [](const trace::Source& source) { return source.name == "c10"; }) &&
         std::any_of(scopes.begin(), scopes.end(), [](const trace::Scope& scope) { return scope.kind == trace::ScopeKind::module; });
}

bool chunk_has(const trace::Columns& columns, trace::Kind kind) {
  return std::find(columns.kind.begin(), columns.kind.end(), static_cast<std::uint8_t>(kind)) != columns.kind.end();
}

std::uint64_t times(std::uint64_t bytes, double factor) {
  constexpr double limit = 18446744073709551616.0;  // 2^64
  const double product = std::round(static_cast<double>(bytes) * factor);
  return product < limit ? static_cast<std::uint64_t>(product) : std::numeric_limits<std::uint64_t>::max();
}

ordered_json factor_json(const Factor& factor, std::uint64_t peak) {
  if (!factor.is_known()) return nullptr;
  ordered_json json = {{"low", factor.low}, {"high", factor.high}};
  if (peak != 0) {
    json["low_bytes"] = factor.of_low(peak);
    json["high_bytes"] = factor.of_high(peak);
  }
  return json;
}

std::string percent(double factor) {
  char text[32];
  const double value = 100 * (factor - 1);
  std::snprintf(text, sizeof text, std::abs(value) >= 10 ? "%+.0f %%" : "%+.3g %%", value);
  return value == 0 ? "0 %" : text;
}

std::string factor_text(const Factor& factor) {
  return factor.is_known() ? percent(factor.low) + " to " + percent(factor.high) : "not known";
}

std::string joined(const std::vector<std::string>& words, const char* between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

std::string device_line(const DryRun& dry_run, const Style& style) {
  std::string text = dry_run.name + " (" + dry_run.gpu + ", compute capability " + std::to_string(dry_run.capability / 10) + "." +
                     std::to_string(dry_run.capability % 10) + ", " + format_bytes(dry_run.memory_bytes, style.exact_bytes) + ")";
  if (dry_run.world > 1) text += ", one rank of " + std::to_string(dry_run.world);
  return text + ": a stand-in, no GPU computed";
}

// Whether the peak has room beside the context.
std::string room_text(const DryRun& dry_run, const DevicePeaks& peaks, const Style& style) {
  const std::uint64_t usable = dry_run.memory_bytes - std::min(dry_run.memory_bytes, dry_run.context_bytes);
  if (std::max(peaks.reserved, peaks.held) == 0 || usable == 0) return {};
  const Factor& factor = dry_run.band.reserved;
  const std::uint64_t others = peaks.held - std::min(peaks.held, peaks.reserved);
  const std::uint64_t most = factor.is_known() ? factor.of_high(peaks.reserved) : peaks.reserved;
  std::string taken;
  if (peaks.reserved != 0) taken = bytes_in_band(peaks.reserved, factor, style) + " reserved at the peak";
  if (others != 0) {
    taken += (taken.empty() ? "" : " and ") + format_bytes(others, style.exact_bytes);
    taken += peaks.reserved != 0 ? " outside PyTorch's allocator" : " taken from the driver at the peak";
  }
  taken += ", of " + format_bytes(usable, style.exact_bytes) + " beside the context (" +
           format_bytes(dry_run.context_bytes, style.exact_bytes) + ")";
  if (dry_run.has("library_memory")) taken += "; what libraries take for themselves is an assumption";
  if (others > usable || most > usable - others) return "may not fit: " + taken;
  const bool is_bounded = peaks.reserved == 0 || factor.is_known() || !dry_run.estimates_allocator();
  return (is_bounded ? "fits: " : "fits unless the estimates below are far off: ") + taken;
}

// How far the job came, where that was not its end; else empty.
std::string reach_text(const Ending& ending) {
  if (ending.status && *ending.status > 128) {
    return "up to where it ended (exit status " + std::to_string(*ending.status) + ", as of signal " +
           std::to_string(*ending.status - 128) + "), ";
  }
  if (ending.status && *ending.status != 0) return "up to where it ended (exit status " + std::to_string(*ending.status) + "), ";
  if (ending.by_trace == "killed") return "up to where it was killed, ";
  return ending.by_trace.empty() ? "up to where the trace ends, " : "";
}

std::string room_line(const DryRun& dry_run, const DevicePeaks& peaks, const Shortage& shortage, const Ending& ending, const Style& style) {
  std::string room = room_text(dry_run, peaks, style);
  if (!room.empty()) room.insert(0, reach_text(ending));
  if (shortage.times == 0) return room;
  if (!shortage.went_on) return "does not fit";
  const std::string times = shortage.times == 1 ? "once" : format_count(shortage.times) + " times";
  return "ran out of memory " + times + " and went on" + (room.empty() ? "" : "; so it " + room);
}

// Where in the job: the innermost frame that is not PyTorch's own, its file without the folders.
std::string place_of(const Estimate& estimate) {
  if (estimate.first.empty()) return "-";
  const auto own = std::find_if(estimate.first.begin(), estimate.first.end(),
                                [](const std::string& frame) { return frame.find("/torch/") == std::string::npos; });
  const std::string& frame = own != estimate.first.end() ? *own : estimate.first.front();
  const std::size_t file = frame.rfind('/', frame.find(".py:"));
  return file == std::string::npos ? frame : frame.substr(file + 1);
}

std::string band_line(const ErrorBand& band) {
  if (!band.allocated.is_known() && !band.reserved.is_known())
    return "compared with real GPUs (" + band.kind + "): none was, error not known";
  return "compared with real GPUs (" + band.kind + "): allocated " + factor_text(band.allocated) + ", reserved " +
         factor_text(band.reserved) + "; seen on " + band.basis;
}

std::string estimates_text(const DryRun& dry_run, const Style& style) {
  Table table({{"times", true}, {"estimate"}, {"detail"}, {"first at"}}, TableFormat::text, style);
  const std::size_t shown = std::min(shown_estimates, dry_run.estimates.size());
  for (std::size_t i = 0; i < shown; ++i) {
    const Estimate& estimate = dry_run.estimates[i];
    table.row({Cell::words((dry_run.counts_are_minima ? ">=" : "") + format_count(estimate.count)), Cell::words(estimate.what),
               Cell::words(estimate.detail.empty() ? "-" : estimate.detail), Cell::words(place_of(estimate))});
  }
  std::string text = table.render();
  if (shown < dry_run.estimates.size())
    text += "  (" + format_count(dry_run.estimates.size() - shown) + " more; --format json lists them)\n";
  if (dry_run.left_out != 0) text += "  (" + format_count(dry_run.left_out) + " statements about still others were not read)\n";
  std::set<std::string_view> said;
  for (const Estimate& estimate : dry_run.estimates) {
    if (said.size() < shown_estimates && said.insert(estimate.what).second)
      text += "  " + wrapped(estimate.what + ": " + estimate.why, style, 4) + "\n";
  }
  return text;
}

}  // namespace

std::uint64_t Factor::of_low(std::uint64_t bytes) const { return times(bytes, low); }
std::uint64_t Factor::of_high(std::uint64_t bytes) const { return times(bytes, high); }

bool DryRun::has(const std::string& what) const {
  return std::any_of(estimates.begin(), estimates.end(), [&](const Estimate& each) { return each.what == what; });
}

bool DryRun::estimates_allocator() const {
  return left_out != 0 ||
         std::any_of(estimates.begin(), estimates.end(), [](const Estimate& each) { return each.reach == Reach::allocator; });
}

// The figures are those of public runs on real GPUs that were repeated on a stand-in (memory snapshots, published peaks); where ours
// was off by e of the real figure, the real one is 1 / (1 + e) of ours.
ErrorBand error_band(const std::vector<Estimate>& estimates, bool trained) {
  const auto has = [&](const char* what) {
    return std::any_of(estimates.begin(), estimates.end(), [&](const Estimate& each) { return each.what == what; });
  };
  const bool compiled = has("compiled");
  const Factor unknown{0, 0};
  if (has("dynamic_shape") || has("unknown_function"))
    return {"with sizes or functions that the stand-in does not know", "", unknown, unknown};
  if (has("side_stream_free")) return {"with blocks that several streams use", "", unknown, unknown};
  if (has("convolution") && compiled)
    return {"compiled, with convolutions", "one model, whose allocated was 11 % low", {1, 1 / 0.89}, unknown};
  if (has("convolution") && trained)
    return {"with convolutions, training", "public convolutional networks", {1 / 1.014, 1 / 0.984}, {1, 1 / 0.8}};
  if (has("convolution"))
    return {
        "with convolutions, inference", "public convolutional networks, whose allocated was 33 to 58 % low", {1, 1 / 0.42}, {1, 1 / 0.42}};
  if (has("workspace")) return {"with scratch memory of libraries", "nothing: no such model was compared", unknown, unknown};
  if (has("collective"))
    return {"with collectives", "one model of 3.4B parameters on 2 GPUs, without and with a sharded optimizer", {0.9999, 1.0001}, unknown};
  if (compiled) return {"compiled", "one compiled transformer", {0.9996, 1.0004}, {1, 1 / 0.967}};
  return {"eager, without convolutions",
          "public transformers, 8 snapshots of training and inference and others",
          {0.9999, 1.0001},
          {0.995, 1.005}};
}

bool used_stand_in(const trace::TraceFile& file) { return has_string(file, "standin.device"); }

Result<std::optional<DryRun>> find_dry_run(const trace::TraceFile& file) {
  if (!has_string(file, "standin.device") && !has_string(file, "standin.estimate")) return std::optional<DryRun>();
  Collecting collecting(file.dictionary());
  bool trained = false;
  trace::Columns kinds_of_chunk;
  for (std::size_t chunk = 0; chunk < file.chunks().size(); ++chunk) {
    if (const Status status = file.read_chunk(chunk, 0, kinds_of_chunk); !status) return status.error();
    trained = trained || chunk_has(kinds_of_chunk, trace::Kind::backward_begin);
    if (!chunk_has(kinds_of_chunk, trace::Kind::attribute)) continue;
    const Status status = trace::for_each_event(file, chunk, chunk + 1, [&](const trace::Event& event) {
      if (event.kind == trace::Kind::attribute) collecting.attribute(event);
      return true;
    });
    if (!status) return status.error();
  }
  if (!collecting.found()) return std::optional<DryRun>();
  DryRun& dry_run = collecting.out();
  if (!dry_run.has("compiled") && has_compiled_module(file)) collecting.take(estimate_in({{"what", "compiled"}, {"count", 1}}));
  const auto& end = file.health().end;
  dry_run.counts_are_minima = !end.empty() && end != "exit";
  dry_run.band = error_band(dry_run.estimates, trained);
  if (!has_modules(file)) dry_run.band = {"of jobs without PyTorch's modules", "", {0, 0}, {0, 0}};
  if (dry_run.left_out != 0) dry_run.band = {"with more estimates than were read", "", {0, 0}, {0, 0}};
  return std::optional<DryRun>(std::move(dry_run));
}

std::string label_of(const DryRun& dry_run, const std::string& heap, const std::string& counter) {
  const std::size_t slash = heap.find('/');  // behind it stands who took the memory; what a library takes is assumed
  const bool is_librarys = slash != std::string::npos && heap.compare(slash, std::string::npos, "/program") != 0;
  if (is_librarys || counter == "outside_allocator" || counter == "device") return "estimate";
  if (counter == "waiting_for_streams") return "estimate";  // how far a stream has got is a matter of time, and kernels here take none
  if (slash == std::string::npos && (counter == "reserved" || counter == "segments")) return "estimate";
  if (dry_run.estimates_allocator()) return "estimate";
  return dry_run.estimates.empty() || !dry_run.has("device_value_read") ? "exact"
                                                                        : "exact if nothing depends on values read from the device";
}

std::optional<Factor> factor_of(const DryRun& dry_run, const std::string& heap, const std::string& counter) {
  if (heap.find('/') != std::string::npos) return std::nullopt;
  if (counter == "allocated") return dry_run.band.allocated;
  if (counter == "reserved" || counter == "segments") return dry_run.band.reserved;
  return std::nullopt;
}

std::string bytes_in_band(std::uint64_t bytes, const Factor& factor, const Style& style) {
  if (!factor.is_known()) return format_bytes(bytes, style.exact_bytes) + " (error not known)";
  if (!factor.is_wide()) return format_bytes(bytes, style.exact_bytes);
  return format_bytes(factor.of_low(bytes), style.exact_bytes) + " to " + format_bytes(factor.of_high(bytes), style.exact_bytes);
}

ordered_json estimates_json(const DryRun& dry_run) {
  ordered_json json = ordered_json::array();
  for (const Estimate& estimate : dry_run.estimates) {
    json.push_back({{"what", estimate.what},
                    {"why", estimate.why},
                    {"count", estimate.count},
                    {"detail", estimate.detail},
                    {"first", estimate.first},
                    {"exact", false}});
    if (dry_run.counts_are_minima) json.back()["count_is_minimum"] = true;
  }
  return json;
}

ordered_json dry_run_json(const DryRun& dry_run, const DevicePeaks& peaks) {
  return {{"gpu", dry_run.gpu},
          {"name", dry_run.name},
          {"capability", std::to_string(dry_run.capability / 10) + "." + std::to_string(dry_run.capability % 10)},
          {"memory_bytes", dry_run.memory_bytes},
          {"context_bytes", dry_run.context_bytes},
          {"devices", dry_run.devices},
          {"world", dry_run.world},
          {"backing", dry_run.backing},
          {"assumed", dry_run.assumed},
          {"band",
           {{"kind", dry_run.band.kind},
            {"basis", dry_run.band.basis},
            {"allocated", factor_json(dry_run.band.allocated, peaks.allocated)},
            {"reserved", factor_json(dry_run.band.reserved, peaks.reserved)}}},
          {"estimates_left_out", dry_run.left_out}};
}

std::string dry_run_text(const DryRun& dry_run, const DevicePeaks& peaks, const Shortage& shortage, const Ending& ending,
                         const Style& style) {
  const auto line = [&style](const std::string& text) { return "         " + wrapped(text, style, 9) + "\n"; };
  std::string text = "DRY RUN  " + wrapped(device_line(dry_run, style), style, 9) + "\n";
  const std::string room = room_line(dry_run, peaks, shortage, ending, style);
  if (!room.empty()) text += line(room);
  if (peaks.lacks_allocator_figures)
    text += line("PyTorch's own statistics are not there: it used another allocator backend, of which only calls to the driver are seen");
  if (peaks.allocated != 0) {
    text += line("allocated: " + label_of(dry_run, "cuda:0", "allocated"));
    text += line("reserved: estimate, it depends on the driver's choice of addresses");
    text += line(band_line(dry_run.band));
  }
  if (!dry_run.assumed.empty()) text += line("assumed of this GPU: " + joined(dry_run.assumed, ", "));
  if (dry_run.has("device_value_read"))
    text += line("what the job wrote (checkpoints, logs, metrics) may hold zeros; let a dry run write to a folder of its own");
  return dry_run.estimates.empty() ? text : text + "\n" + estimates_text(dry_run, style);
}

}  // namespace liveset::report
