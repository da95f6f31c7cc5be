#include "viewer/report/text.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace liveset::report {
namespace {

std::string fixed(double number, int decimals) {
  std::array<char, 64> buffer;
  std::snprintf(buffer.data(), buffer.size(), "%.*f", decimals, number);
  return buffer.data();
}

// Terminal columns: one a code point is right for what names of modules and devices hold.
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string pad(const std::string& text, std::size_t width, bool right) {
  const std::size_t own = width_of(text);
  const std::string space(width > own ? width - own : 0, ' ');
  return right ? space + text : text + space;
}

std::string quote_csv(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) text += (i == 0 ? "" : std::string(separator)) + parts[i];
  return text;
}

}  // namespace

std::string format_count(std::uint64_t count) {
  std::string digits = std::to_string(count);
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

std::string format_bytes(std::uint64_t bytes, bool exact) {
  if (exact) return format_count(bytes);
  const auto number = static_cast<double>(bytes);
  if (bytes >= 1ULL << 30) return fixed(number / 0x1p30, 2) + " GiB";
  if (bytes >= 1ULL << 20) return fixed(number / 0x1p20, 2) + " MiB";
  if (bytes >= 1ULL << 10) return fixed(number / 0x1p10, 2) + " KiB";
  return std::to_string(bytes) + " B";
}

std::string format_time(std::uint64_t ns) {
  const auto number = static_cast<double>(ns);
  if (ns >= 1'000'000'000) return fixed(number / 1e9, 3) + " s";
  if (ns >= 1'000'000) return fixed(number / 1e6, 3) + " ms";
  if (ns >= 1'000) return fixed(number / 1e3, 3) + " us";
  return std::to_string(ns) + " ns";
}

std::string format_percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? "-" : fixed(100.0 * static_cast<double>(part) / static_cast<double>(whole), 1) + "%";
}

std::string printable(std::string_view text, const Style& style, std::size_t width) {
  std::string clean;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f)
      clean += '?';
    else if (byte >= 0x80 && style.ascii)
      clean += (byte & 0xc0) != 0x80 ? "?" : "";
    else
      clean += c;
  }
  if (width_of(clean) <= width || width < 8) return clean;
  const auto forward = [&](std::size_t at, std::size_t count) {  // byte offset `count` code points after `at`
    for (; count > 0 && at < clean.size(); --count) {
      do ++at;
      while (at < clean.size() && (static_cast<unsigned char>(clean[at]) & 0xc0) == 0x80);
    }
    return at;
  };
  const std::size_t keep = width - 3, head = keep / 2;
  return clean.substr(0, forward(0, head)) + "..." + clean.substr(forward(0, width_of(clean) - (keep - head)));
}

std::string Table::cell_text(const Cell& cell) const {
  if (format_ == TableFormat::csv) {
    switch (cell.kind) {
      case Cell::Kind::text: return quote_csv(cell.text);
      case Cell::Kind::percent:
        return cell.whole == 0 ? ""
                               : fixed(100.0 * static_cast<double>(cell.number) / static_cast<double>(cell.whole), 4);
      default: return std::to_string(cell.number);
    }
  }
  switch (cell.kind) {
    case Cell::Kind::bytes: return format_bytes(cell.number, style_.exact_bytes);
    case Cell::Kind::count: return format_count(cell.number);
    case Cell::Kind::percent: return format_percent(cell.number, cell.whole);
    case Cell::Kind::text: break;
  }
  std::string text = printable(cell.text, style_);
  if (format_ != TableFormat::md) return text;
  std::string escaped;
  for (const char c : text) escaped += c == '|' ? std::string("\\|") : std::string(1, c);
  return escaped;
}

std::vector<std::size_t> Table::widths(const std::vector<std::vector<std::string>>& rows) const {
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::size_t width = std::max(columns_[i].width, width_of(columns_[i].title));
    for (const auto& row : rows)
      width = std::max(width, i < row.size() && columns_[i].width == 0 ? width_of(row[i]) : 0);
    widths.push_back(width);
  }
  return widths;
}

std::string Table::line(const std::vector<std::string>& cells, const std::vector<std::size_t>& widths) const {
  if (format_ == TableFormat::csv) return join(cells, ",") + "\n";
  if (format_ == TableFormat::md) return "| " + join(cells, " | ") + " |\n";
  std::string text;
  std::size_t used = 0;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const bool last = i + 1 == cells.size();
    used += 2 + widths[i];
    std::string cell = cells[i];
    if (last && !columns_[i].right) {
      const std::size_t before = used - widths[i];
      cell = printable(cell, style_, before + 8 < style_.columns ? style_.columns - before : 8);
    } else {
      cell =
          pad(columns_[i].width != 0 ? printable(cell, style_, columns_[i].width) : cell, widths[i], columns_[i].right);
    }
    text += "  " + cell;
  }
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text + "\n";
}

std::string Table::render_titles() const {
  std::vector<std::string> titles;
  for (const Column& column : columns_)
    titles.push_back(format_ == TableFormat::csv ? quote_csv(column.title) : column.title);
  std::string text = line(titles, widths({}));
  if (format_ == TableFormat::md) {
    std::vector<std::string> rule;
    for (const Column& column : columns_) rule.push_back(column.right ? "--:" : "---");
    text += line(rule, {});
  }
  return text;
}

std::string Table::render_row(const std::vector<Cell>& cells) const {
  std::vector<std::string> texts;
  for (const Cell& cell : cells) texts.push_back(cell_text(cell));
  return line(texts, widths({}));
}

std::string Table::render() const {
  std::vector<std::vector<std::string>> rows;
  for (const auto& cells : rows_) {
    rows.emplace_back();
    for (const Cell& cell : cells) rows.back().push_back(cell_text(cell));
  }
  if (format_ != TableFormat::text) {
    std::string text = render_titles();
    for (const auto& row : rows) text += line(row, {});
    return text;
  }
  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.push_back(column.title);
  const std::vector<std::size_t> all = widths(rows);
  std::string text = line(titles, all);
  for (const auto& row : rows) text += line(row, all);
  return text;
}

}  // namespace liveset::report
