// Numbers and tables for people (and for spreadsheets and Markdown): the one place where figures become text.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace liveset::report {

enum class TableFormat { text, csv, md };

struct Style {
  bool exact_bytes = false;  // bytes instead of GiB, MiB, KiB
  bool ascii = false;        // no characters beyond ASCII
  bool color = false;
  unsigned columns = 80;
};

std::string format_bytes(std::uint64_t bytes, bool exact);                              // "27.07 MiB", "512 B"; exact: "28,386,344"
std::string format_change(std::int64_t bytes, bool exact);                              // "+27.07 MiB", "-512 B", "0 B"
std::string format_count(std::uint64_t count);                                          // "1,234,567"
std::string counted(std::uint64_t count, std::string_view one, std::string_view many);  // "1 event", "2 events"
std::string counted(std::uint64_t count, std::string_view one);                         // the same, with an "s" for many
std::string format_time(std::uint64_t ns);                                              // "1.234 s", "12.3 ms"
std::string format_percent(std::uint64_t part, std::uint64_t whole);                    // "79.6%"

// Text from a trace may hold anything: control characters would act on the terminal, so they are shown as '?', and so
// are bytes that are no UTF-8; with `ascii`, so is everything beyond ASCII. Longer than `width`, the middle goes ("GPT.bs.0...ln1"): both
// ends of a module path tell most.
std::string printable(std::string_view text, const Style& style, std::size_t width = std::string::npos);

// A value's name ("GPT.bs.0.ln1/NativeLayerNormBackward0.input") in at most `width` columns. What tells values apart stands at the end, so
// "Backward0" goes first, then the module's first parts: "...ln1/NativeLayerNorm.input".
std::string short_name(std::string_view name, std::size_t width);

// Printable text in lines that keep to the style's width; all but the first are indented.
std::string wrapped(std::string_view text, const Style& style, std::size_t indent);

struct Cell {
  enum class Kind { text, bytes, count, percent } kind = Kind::text;
  std::string text;
  std::uint64_t number = 0, whole = 0;

  static Cell words(std::string_view text) { return {Kind::text, std::string(text)}; }
  static Cell bytes(std::uint64_t bytes) { return {Kind::bytes, {}, bytes}; }
  static Cell count(std::uint64_t count) { return {Kind::count, {}, count}; }
  static Cell percent(std::uint64_t part, std::uint64_t whole) { return {Kind::percent, {}, part, whole}; }
};

struct Column {
  std::string title;
  bool right = false;     // numbers
  std::size_t width = 0;  // 0: as wide as its widest cell; fixed widths let rows be printed one by one
  bool whole = false;     // of a last column of words: one that does not fit is not cut, but has a line of its own
};

// Rows of cells. Text: two spaces indentation and between columns, columns of words cut so that lines keep to the
// style's width; numbers are never cut. csv: exact integers, quoted where needed. md: a pipe table.
class Table {
 public:
  Table(std::vector<Column> columns, TableFormat format, Style style) : columns_(std::move(columns)), format_(format), style_(style) {}
  void row(std::vector<Cell> cells) { rows_.push_back(std::move(cells)); }
  bool empty() const { return rows_.empty(); }
  // The title line, then all rows.
  std::string render() const;
  // For long lists with fixed widths: the parts one by one.
  std::string render_titles() const;
  std::string render_row(const std::vector<Cell>& cells) const;

 private:
  std::string cell_text(const Cell& cell) const;
  std::vector<std::size_t> widths(const std::vector<std::vector<std::string>>& rows) const;
  void fit(std::vector<std::size_t>& widths) const;
  std::string line(const std::vector<std::string>& cells, const std::vector<std::size_t>& widths) const;

  std::vector<Column> columns_;
  TableFormat format_;
  Style style_;
  std::vector<std::vector<Cell>> rows_;
};

// One of several tables of a Markdown text, under its title; nothing of a table without rows.
std::string markdown_part(const std::string& title, const Table& table);

// "  (12 more regions; --top shows more)\n"; nothing when all are shown.
std::string more_line(std::size_t all, std::size_t shown, const std::string& what = "");

}  // namespace liveset::report
