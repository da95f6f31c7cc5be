// The summary for a person whose job ran out of memory: the answer first, then where it comes from, then whether to
// trust it.
#include <algorithm>
#include <cctype>
#include <cstring>

#include "viewer/report/summary.h"
#include "viewer/report/trace_info.h"

namespace liveset::report {
namespace {

constexpr std::size_t shown_steps = 10;

std::string bold(const std::string& text, const Style& style) { return style.color ? "\033[1m" + text + "\033[0m" : text; }

std::string join_words(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string first_line(const Summary& summary, const Style& style) {
  std::string facts = counted(summary.events, "event", "events");
  if (!summary.steps.empty()) facts += ", " + format_count(summary.steps.size()) + (summary.steps.size() == 1 ? " step" : " steps");
  facts += ", " + format_time(summary.end_time_ns) + " to the last" + (summary.health.end == "killed" ? ", the job was killed" : "");
  if (!summary.imported) facts += ", pid " + std::to_string(summary.process.pid);
  if (summary.imported) facts += ", imported from a " + summary.imported->from + " file";
  if (const std::string rank = rank_text(summary.process); !rank.empty()) facts += ", rank " + rank;
  const std::string command = printable(join_words(summary.process.command), style, style.columns > 20 ? style.columns - 2 : 20);
  return wrapped(summary.file + "  (" + facts + ")", style, 2) + "\n" + (command.empty() ? "" : "  " + command + "\n");
}

// All steps, or the first few, the highest and the last.
std::vector<std::size_t> steps_to_show(const Summary& summary) {
  std::vector<std::size_t> shown;
  const std::size_t count = summary.steps.size();
  std::size_t highest = 0;
  for (std::size_t i = 1; i < count; ++i) {
    if (summary.steps[i].step.peak().peak_bytes > summary.steps[highest].step.peak().peak_bytes) highest = i;
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (count <= shown_steps || i < 5 || i == highest || i + 3 >= count) shown.push_back(i);
  }
  return shown;
}

Table steps_table(const Summary& summary, const std::vector<std::size_t>& shown, TableFormat format, const Style& style) {
  Table table(
      {{"step", true}, {"peak", true}, {"in phase"}, {"at backward", true}, {"activations", true}, {"blocks", true}, {"recomputed", true}},
      format, style);
  for (const std::size_t i : shown) {
    const StepFigure& figure = summary.steps[i];
    const ledger::PhaseFigures& peak = figure.step.peak();
    std::uint64_t allocations = 0;
    for (const ledger::PhaseFigures& phase : figure.step.phases) allocations += phase.allocations;
    const auto phase = static_cast<trace::Phase>(&peak - figure.step.phases.data());
    std::vector<Cell> cells = {Cell::words(std::to_string(figure.step.number)),
                               Cell::bytes(static_cast<std::uint64_t>(std::max<std::int64_t>(peak.peak_bytes, 0))),
                               Cell::words(trace::phase_name(phase))};
    if (figure.backwards.empty()) {
      cells.push_back(Cell::words("-"));
      cells.push_back(Cell::words("-"));
    } else {
      const BackwardFigure& backward = figure.backwards.front();
      cells.push_back(Cell::bytes(backward.live_bytes));
      cells.push_back(Cell::bytes(backward.classes[static_cast<std::size_t>(trace::MemoryClass::activation)]));
    }
    cells.push_back(Cell::count(allocations));
    cells.push_back(Cell::count(figure.step.phases[static_cast<std::size_t>(trace::Phase::recompute)].allocations));
    table.row(std::move(cells));
  }
  return table;
}

std::string counter_label(const Summary& summary, const CounterFigure& counter) {
  const std::string sampled = counter.sampled ? "sampled" : "";
  if (!summary.dry_run || counter.heap.compare(0, 5, "cuda:") != 0 || label_of(*summary.dry_run, counter.heap, counter.name) != "estimate")
    return sampled;
  return sampled + (counter.sampled ? ", est." : "estimate");
}

// Where ours and the real figure were seen to lie well apart, a dry run's estimate is shown as a range.
std::optional<Factor> range_of(const Summary& summary, const CounterFigure& counter) {
  if (!summary.dry_run || counter.heap.compare(0, 5, "cuda:") != 0 || label_of(*summary.dry_run, counter.heap, counter.name) != "estimate")
    return std::nullopt;
  const std::optional<Factor> factor = factor_of(*summary.dry_run, counter.heap, counter.name);
  return factor && factor->is_wide() ? factor : std::nullopt;
}

Cell peak_cell(const Summary& summary, const CounterFigure& counter, const Style& style) {
  const std::optional<Factor> range = range_of(summary, counter);
  if (!counter.peak_is_known) return Cell::words("not known");
  return range ? Cell::words(bytes_in_band(counter.peak, *range, style)) : Cell::bytes(counter.peak);
}

Cell final_cell(const Summary& summary, const CounterFigure& counter, const Style& style) {
  const std::optional<Factor> range = range_of(summary, counter);
  return range ? Cell::words(">= " + format_bytes(range->of_low(counter.final), style.exact_bytes)) : Cell::bytes(counter.final);
}

Table counters_table(const Summary& summary, TableFormat format, const Style& style) {
  Table table({{"heap"}, {"counter"}, {"peak", true}, {"at the end", true}, {""}}, format, style);
  for (const CounterFigure& counter : summary.counters)
    table.row({Cell::words(counter.heap), Cell::words(counter.name), peak_cell(summary, counter, style),
               final_cell(summary, counter, style), Cell::words(counter_label(summary, counter))});
  return table;
}

Table phases_table(const Summary& summary, TableFormat format, const Style& style) {
  Table table({{"phase"}, {"peak", true}, {"allocations", true}}, format, style);
  for (int i = 0; i < trace::phase_count; ++i) {
    const ledger::PhaseFigures& phase = summary.phases[static_cast<std::size_t>(i)];
    if (phase.peak_bytes >= 0)
      table.row({Cell::words(trace::phase_name(static_cast<trace::Phase>(i))), Cell::bytes(static_cast<std::uint64_t>(phase.peak_bytes)),
                 Cell::count(phase.allocations)});
  }
  return table;
}

std::string source_names(const Summary& summary) {
  std::string text;
  for (const trace::Source& source : summary.sources) text += (text.empty() ? "" : ", ") + source.name;
  return text.empty() ? "no source that names itself" : text;
}

// A file that cannot be what it says: no number of it is to be believed before somebody has looked.
void contradiction_lines(const ledger::Imported& imported, const Style& style, std::vector<std::string>& lines) {
  constexpr std::size_t shown = 6;
  for (const ledger::ImportedHeap& heap : imported.heaps) {
    if (heap.contradiction_count == 0) continue;
    lines.push_back("the file contradicts itself in " + counted(heap.contradiction_count, "place", "places") + " of " +
                    printable(heap.name, style) + ":");
    for (std::size_t i = 0; i < std::min(shown, heap.contradictions.size()); ++i)
      lines.push_back("- " + printable(heap.contradictions[i], style));
  }
}

void opening_lines(const Summary& summary, const Style& style, std::string& text) {
  const ledger::ImportedHeap* heap = summary.imported ? summary.imported->heap(summary.heap) : nullptr;
  if (heap == nullptr || heap->history != "window") return;
  text += "  " +
          wrapped("(counted in: " + counted(heap->opening_blocks, "block", "blocks") + " of " +
                      format_bytes(heap->opening_bytes, style.exact_bytes) +
                      " that lived before the file's first event; a higher peak before it is not in the file)",
                  style, 3) +
          "\n";
}

void reconciliation_lines(const Summary& summary, const Style& style, std::vector<std::string>& lines) {
  const ledger::Attribution& found = summary.attribution;
  if (found.orphans != 0)
    lines.push_back(counted(found.orphans, "statement names", "statements name") + " a storage that no live block holds (" +
                    format_bytes(found.orphan_bytes, style.exact_bytes) + ")");
  // Some nanoseconds between a release and the free are how programs work; a hundredth of the peak over the whole run
  // is not.
  const double whole = summary.peak ? 1e-9 * static_cast<double>(summary.end_time_ns) * static_cast<double>(summary.peak->bytes) : 0;
  if (found.over_retained_byte_seconds > 0.01 * whole)
    lines.push_back(counted(found.over_retained_blocks, "block", "blocks") + " (" +
                    format_bytes(found.over_retained_bytes, style.exact_bytes) + ") freed later than released, the latest by " +
                    format_time(found.longest_delay_ns));
  if (found.freed_before_release != 0)
    lines.push_back(counted(found.freed_before_release, "block was", "blocks were") + " freed before the value in it was released");
}

std::string peak_bytes(const PeakFigure& peak, const Style& style) {
  return peak.band && peak.band->is_wide() ? bytes_in_band(peak.bytes, *peak.band, style) : format_bytes(peak.bytes, style.exact_bytes);
}

}  // namespace

// For a shell.
std::string quoted(const std::string& path) {
  const bool plain = !path.empty() && std::all_of(path.begin(), path.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c >= 0x80 || std::strchr("/._-+:,=@%", c) != nullptr;
  });
  if (plain) return path;
  std::string text = "'";
  for (const char c : path) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

std::vector<std::string> health_lines(const Summary& summary, const Style& style) {
  const trace::Health& health = summary.health;
  std::vector<std::string> lines;
  if (health.truncated || health.damaged_packets != 0)
    lines.push_back("the file is incomplete: " + (health.note.empty() ? counted(health.damaged_packets, "damaged packet", "damaged packets")
                                                                      : printable(health.note, style)));
  if (summary.imported) {
    contradiction_lines(*summary.imported, style, lines);
    if (const std::string unknown = unknown_events_text(*summary.imported); !unknown.empty())
      lines.push_back(printable(unknown, style) + ": sums may be too high or too low");
  }
  if (health.lost_events != 0)
    lines.push_back(counted(health.lost_events, "event was", "events were") + " lost while recording: sums may be too high or too low");
  if (health.lost_names != 0)
    lines.push_back(counted(health.lost_names, "name was", "names were") + " lost while recording: there was no room for more");
  if (summary.sums_off != 0) lines.push_back("events are missing in the file: blocks freed there still count as live afterwards");
  if (summary.unmatched_frees != 0)
    lines.push_back(counted(summary.unmatched_frees, "free", "frees") + " of blocks whose allocation was not recorded");
  if (summary.conservation_mismatches != 0) {
    lines.push_back(counted(summary.conservation_mismatches, "event", "events") + " of " + format_count(summary.checked_events) +
                    " at which the allocator's own total differs from ours, first at event " +
                    std::to_string(summary.mismatches.empty() ? 0 : summary.mismatches.front().event));
  }
  if (summary.reserved_below_total != 0)
    lines.push_back(counted(summary.reserved_below_total, "event states", "events state") + " less reserved than allocated");
  if (summary.segments_not_reserved != 0)
    lines.push_back(counted(summary.segments_not_reserved, "event", "events") + " at which segments and reserved differ");
  if (summary.dropped_marks != 0)
    lines.push_back(counted(summary.dropped_marks, "step or backward is", "steps or backwards are") + " not listed one by one");
  return lines;
}

std::string out_of_memory_text(const std::vector<OutOfMemoryFigure>& figures, const Style& style) {
  constexpr std::size_t shown = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(shown, figures.size()); ++i) {
    const OutOfMemoryFigure& figure = figures[i];
    text +=
        bold("OUT OF MEMORY  " + format_bytes(figure.found.asked_bytes, style.exact_bytes) + " asked of " + printable(figure.heap, style) +
                 ", which had " + format_bytes(figure.found.allocated_bytes, style.exact_bytes) + " allocated",
             style) +
        "\n      " +
        wrapped((figure.step ? "step " + std::to_string(*figure.step) + ", " : "outside any step, ") +
                    std::string(trace::phase_name(figure.phase)) + ", at " + format_time(figure.time_ns) + " (event " +
                    std::to_string(figure.found.event) + "; what lived then: peak --at " + std::to_string(figure.found.event) + ")",
                style, 6) +
        "\n";
    const std::string& place = figure.module.empty() ? figure.scope : figure.module;
    if (!place.empty()) text += "      in " + printable(place, style, style.columns > 30 ? style.columns - 9 : 21) + "\n";
  }
  if (figures.size() > shown) text += "      (" + format_count(figures.size() - shown) + " more times)\n";
  if (!figures.empty() && figures.back().live)
    text += std::string("\n  what lived ") + (figures.size() > 1 ? "at the last of them" : "then") + "\n" +
            classes_table(*figures.back().live, TableFormat::text, style).render();
  return text;
}

std::string peak_headline(const PeakFigure& peak, const Style& style) {
  if (!peak.is_known)
    return bold("AT THE DUMP  " + format_bytes(peak.bytes, style.exact_bytes) + " " + printable(peak.counter, style) + " on " +
                    printable(peak.heap, style),
                style) +
           (style.exact_bytes ? "" : "  (" + format_count(peak.bytes) + " bytes)") + "\n      " +
           wrapped("the peak is not known: the file tells only this state, and nothing of what was before", style, 6) + "\n";
  const bool is_range = peak.band && peak.band->is_wide();
  std::string text =
      bold("PEAK  " + peak_bytes(peak, style) + " " + printable(peak.counter, style) + " on " + printable(peak.heap, style), style);
  if (peak.label == "estimate") text += "  estimate";
  if (!style.exact_bytes && !is_range) text += "  (" + format_count(peak.bytes) + " bytes)";
  if (peak.sampled) text += "  sampled";
  text += "\n      ";
  text += peak.step ? "step " + std::to_string(*peak.step) + ", " : "outside any step, ";
  text +=
      std::string(trace::phase_name(peak.phase)) + ", at " + format_time(peak.time_ns) + " (event " + std::to_string(peak.event) + ")\n";
  const std::string& place = peak.module.empty() ? peak.scope : peak.module;
  if (!place.empty()) text += "      in " + printable(place, style, style.columns > 30 ? style.columns - 9 : 21) + "\n";
  return text;
}

std::string guess_note(std::uint64_t guess_bytes, std::uint64_t bytes) {
  return guess_bytes == 0 ? "" : guess_bytes == bytes ? "guess" : format_percent(guess_bytes, bytes) + " a guess";
}

std::string beyond_blocks_name(const PeakFigure& peak) {
  return peak.beyond_blocks() > 0 ? "(in no block: kept by the allocator for later)"
                                  : "(in blocks, and not counted by " + peak.counter + ")";
}

// Table cells have no sign.
Cell beyond_blocks_cell(const PeakFigure& peak, TableFormat format, const Style& style) {
  const std::int64_t bytes = peak.beyond_blocks();
  if (format == TableFormat::csv) return Cell::words(std::to_string(bytes));
  const std::uint64_t size = bytes < 0 ? 0 - static_cast<std::uint64_t>(bytes) : static_cast<std::uint64_t>(bytes);
  return Cell::words((bytes < 0 ? "-" : "") + format_bytes(size, style.exact_bytes));
}

Table classes_table(const PeakFigure& peak, TableFormat format, const Style& style) {
  std::vector<std::pair<std::uint64_t, std::size_t>> order;
  for (std::size_t i = 0; i < peak.classes.size(); ++i)
    if (peak.classes[i] != 0) order.emplace_back(peak.classes[i], i);
  const std::uint64_t sum = std::max(peak.bytes, peak.allocated_bytes);
  std::sort(order.begin(), order.end(),
            [](const auto& a, const auto& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; });
  const bool shows_guesses = std::any_of(peak.guessed.begin(), peak.guessed.end(), [](std::uint64_t bytes) { return bytes != 0; });
  std::vector<Column> columns = {{"holds"}, {"bytes", true}, {"", true}};
  if (shows_guesses) columns.push_back({""});
  Table table(std::move(columns), format, style);
  for (const auto& [bytes, i] : order) {
    std::vector<Cell> cells = {Cell::words(trace::class_name(static_cast<trace::MemoryClass>(i))), Cell::bytes(bytes),
                               Cell::percent(bytes, sum)};
    if (shows_guesses) cells.push_back(Cell::words(guess_note(peak.guessed[i], bytes)));
    table.row(std::move(cells));
  }
  if (peak.beyond_blocks() != 0) {
    std::vector<Cell> cells = {Cell::words(beyond_blocks_name(peak)), beyond_blocks_cell(peak, format, style), Cell::words("")};
    if (shows_guesses) cells.push_back(Cell::words(""));
    table.row(std::move(cells));
  }
  return table;
}

std::string summary_text(const Summary& summary, const Style& style) {
  std::string text = first_line(summary, style) + "\n";
  if (!summary.out_of_memory.empty()) text += out_of_memory_text(summary.out_of_memory, style) + "\n";
  if (summary.peak) {
    text += peak_headline(*summary.peak, style) + "\n" + classes_table(*summary.peak, TableFormat::text, style).render();
    if (summary.peak->allocated_bytes < summary.peak->bytes)
      text += "  (" + format_bytes(summary.peak->bytes - summary.peak->allocated_bytes, style.exact_bytes) +
              " of it in no block: kept by the allocator for later)\n";
    if (summary.baseline_bytes != 0)
      text += "  (not counted: " + format_bytes(summary.baseline_bytes, style.exact_bytes) +
              " that were allocated before the recording began)\n";
    opening_lines(summary, style, text);
  } else {
    text += "PEAK  none: the trace has no allocation\n";
  }
  if (!summary.steps.empty()) {
    const std::vector<std::size_t> shown = steps_to_show(summary);
    text += "\n" + steps_table(summary, shown, TableFormat::text, style).render();
    if (shown.size() < summary.steps.size())
      text += "  (" + format_count(summary.steps.size() - shown.size()) + " more; --format json lists all)\n";
  } else if (summary.peak && summary.peak->is_known) {
    text += "\n" + phases_table(summary, TableFormat::text, style).render();
  }
  if (summary.counters.size() > 1) text += "\n" + counters_table(summary, TableFormat::text, style).render();
  text += devices_text(summary.devices, style);
  if (summary.kernels) text += kernels_text(*summary.kernels, style);
  if (summary.kernels && summary.dry_run) text += "  (a dry run sees no launches inside cuBLAS, cuDNN and NCCL)\n";

  if (summary.dry_run) text += "\n" + dry_run_text(*summary.dry_run, device_peaks(summary), summary.shortage, ending_of(summary), style);

  std::vector<std::string> lines = health_lines(summary, style);
  const std::size_t problems = lines.size();
  reconciliation_lines(summary, style, lines);
  text += "\n";
  if (problems == 0) {
    std::string whole = "nothing lost";
    if (summary.imported) whole = "the file is whole, and does not contradict itself";
    if (summary.checked_events != 0)
      whole += "; our sum equals the allocator's own total at all " + format_count(summary.checked_events) + " events that carry it";
    text += "HEALTH  " + wrapped(whole, style, 8) + "\n";
  }
  for (std::size_t i = 0; i < lines.size(); ++i)
    text += (i == 0 && problems != 0 ? "HEALTH  " : "        ") + wrapped(lines[i], style, 8) + "\n";
  text += "        " + wrapped("seen by " + source_names(summary) + "; `liveset info` says what that cannot see", style, 8) + "\n";
  if (summary.attribution.python_since != 0)
    text += "        " +
            wrapped("python was silent before event " + format_count(summary.attribution.python_since) +
                        ": what was allocated before is unattributed",
                    style, 8) +
            "\n";
  if (summary.peak)
    text += "\nNext: liveset peak " + printable(quoted(summary.file), style) + (summary.imported ? " --by stack\n" : " --by module\n");
  return text;
}

std::string summary_markdown(const Summary& summary, const Style& style) {
  std::string text = "# " + printable(summary.file, style) + "\n\n";
  for (const OutOfMemoryFigure& figure : summary.out_of_memory)
    text += "- out of memory: " + format_bytes(figure.found.asked_bytes, style.exact_bytes) + " asked of " + printable(figure.heap, style) +
            ", which had " + format_bytes(figure.found.allocated_bytes, style.exact_bytes) + " allocated, event " +
            std::to_string(figure.found.event) + "\n";
  if (!summary.out_of_memory.empty()) text += "\n";
  if (summary.peak) {
    const PeakFigure& peak = *summary.peak;
    text += std::string(peak.is_known ? "Peak" : "At the dump, the peak is not known") + ": **" + peak_bytes(peak, style) + "** " +
            (peak.label == "estimate" ? "(estimate) " : "") + peak.counter + " on " + printable(peak.heap, style) + ", " +
            (peak.step ? "step " + std::to_string(*peak.step) : "outside any step") + ", " + std::string(trace::phase_name(peak.phase)) +
            (peak.module.empty() ? "" : ", in `" + printable(peak.module, style) + "`") + ", event " + std::to_string(peak.event) + "\n\n";
    text += classes_table(peak, TableFormat::md, style).render() + "\n";
  }
  if (!summary.steps.empty()) {
    std::vector<std::size_t> all(summary.steps.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    text += steps_table(summary, all, TableFormat::md, style).render() + "\n";
  }
  text += counters_table(summary, TableFormat::md, style).render() + "\n";
  if (summary.dry_run)
    text += "```\n" + dry_run_text(*summary.dry_run, device_peaks(summary), summary.shortage, ending_of(summary), style) + "```\n\n";
  const std::vector<std::string> problems = health_lines(summary, style);
  if (problems.empty()) text += "Health: nothing lost\n";
  for (const std::string& line : problems) text += "- " + line + "\n";
  return text;
}

}  // namespace liveset::report
