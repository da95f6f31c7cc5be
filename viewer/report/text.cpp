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

// Bytes of the UTF-8 character that begins at `at`; 0 where none that may reach a terminal does: broken sequences,
// and the control characters from U+0080 to U+009F.
std::size_t character_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const unsigned first = byte(at);
  const std::size_t length = first < 0x80                    ? 1
                             : first >= 0xc2 && first < 0xe0 ? 2
                             : first >= 0xe0 && first < 0xf0 ? 3
                             : first >= 0xf0 && first < 0xf5 ? 4
                                                             : 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return 0;
  }
  const bool control = first < 0x20 || first == 0x7f || (first == 0xc2 && byte(at + 1) < 0xa0);
  const bool not_shortest = (first == 0xe0 && byte(at + 1) < 0xa0) || (first == 0xf0 && byte(at + 1) < 0x90);
  const bool no_character = (first == 0xed && byte(at + 1) >= 0xa0) || (first == 0xf4 && byte(at + 1) >= 0x90);
  return control || not_shortest || no_character ? 0 : length;
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
  if (bytes >= 1ULL << 50) return fixed(number / 0x1p50, 2) + " PiB";
  if (bytes >= 1ULL << 40) return fixed(number / 0x1p40, 2) + " TiB";
  if (bytes >= 1ULL << 30) return fixed(number / 0x1p30, 2) + " GiB";
  if (bytes >= 1ULL << 20) return fixed(number / 0x1p20, 2) + " MiB";
  if (bytes >= 1ULL << 10) return fixed(number / 0x1p10, 2) + " KiB";
  return std::to_string(bytes) + " B";
}

std::string format_change(std::int64_t bytes, bool exact) {
  const auto size = static_cast<std::uint64_t>(bytes);
  return bytes < 0 ? "-" + format_bytes(~size + 1, exact) : (bytes > 0 ? "+" : "") + format_bytes(size, exact);
}

std::string counted(std::uint64_t count, std::string_view one, std::string_view many) {
  return format_count(count) + " " + std::string(count == 1 ? one : many);
}

std::string counted(std::uint64_t count, std::string_view one) { return counted(count, one, std::string(one) + "s"); }

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
  for (std::size_t at = 0, length = 0; at < text.size(); at += std::max<std::size_t>(length, 1)) {
    length = character_length(text, at);
    clean += length == 0 || (length > 1 && style.ascii) ? "?" : text.substr(at, length);
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

std::string short_name(std::string_view name, std::size_t width) {
  std::string text(name);
  if (width_of(text) <= width || width < 8) return text;
  constexpr std::string_view backward = "Backward";
  const std::size_t slot = text.rfind('/') + 1;  // npos + 1 is 0
  if (const auto begin = text.find(backward, slot); begin != std::string::npos && begin > slot)
    text.erase(begin, std::min(text.find_first_not_of("0123456789", begin + backward.size()), text.size()) - begin);
  if (width_of(text) <= width) return text;
  std::string_view rest = text;
  std::size_t wide = width_of(rest) + 3;
  const auto drop = [&](std::size_t bytes) {
    wide -= width_of(rest.substr(0, bytes));
    rest.remove_prefix(bytes);
  };
  for (std::size_t parts = text.rfind('/') + 1; wide > width && parts > 0;) {  // bytes up to the last one
    const std::size_t part = rest.find_first_of("./") + 1;
    drop(part);
    parts -= part;
  }
  while (wide > width) drop(std::max<std::size_t>(character_length(rest, 0), 1));
  return "..." + std::string(rest);
}

std::string wrapped(std::string_view text, const Style& style, std::size_t indent) {
  const std::string clean = printable(text, style);
  const std::size_t room = style.columns > indent + 20 ? style.columns - indent : 20;
  std::string lines;
  std::size_t used = 0;
  for (std::size_t at = 0; at < clean.size();) {
    const std::size_t end = std::min(clean.find(' ', at), clean.size());
    const std::string word = clean.substr(at, end - at);
    const std::size_t width = width_of(word);
    if (used != 0 && used + 1 + width > room) {
      lines += "\n" + std::string(indent, ' ');
      used = 0;
    }
    lines += (used == 0 ? "" : " ") + word;
    used += (used == 0 ? 0 : 1) + width;
    at = end + 1;
  }
  return lines;
}

std::string Table::cell_text(const Cell& cell) const {
  if (format_ == TableFormat::csv) {
    switch (cell.kind) {
      case Cell::Kind::text: return quote_csv(cell.text);
      case Cell::Kind::percent:
        return cell.whole == 0 ? "" : fixed(100.0 * static_cast<double>(cell.number) / static_cast<double>(cell.whole), 4);
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
    for (const auto& row : rows) width = std::max(width, i < row.size() && columns_[i].width == 0 ? width_of(row[i]) : 0);
    widths.push_back(width);
  }
  if (format_ == TableFormat::text) fit(widths);
  return widths;
}

// Words give way to numbers: the widest column of words is narrowed until the line keeps to the style's width.
void Table::fit(std::vector<std::size_t>& widths) const {
  constexpr std::size_t least = 12;  // shorter ones are no words any more
  const std::size_t last = columns_.size() - 1;
  std::size_t line = columns_[last].right ? widths[last] + 2 : std::min(widths[last], least) + 2;
  for (std::size_t i = 0; i < last; ++i) line += widths[i] + 2;
  while (line > style_.columns) {
    std::size_t widest = last;
    for (std::size_t i = 0; i < last; ++i) {
      if (!columns_[i].right && widths[i] > least && (widest == last || widths[i] > widths[widest])) widest = i;
    }
    if (widest == last) return;
    --widths[widest];
    --line;
  }
}

std::string Table::line(const std::vector<std::string>& cells, const std::vector<std::size_t>& widths) const {
  if (format_ == TableFormat::csv) return join(cells, ",") + "\n";
  if (format_ == TableFormat::md) return "| " + join(cells, " | ") + " |\n";
  std::string text;
  std::size_t used = 0;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const bool last = i + 1 == cells.size();
    used += 2;
    std::string cell = cells[i];
    const std::size_t room = used + 8 < style_.columns ? style_.columns - used : 8;
    if (last && columns_[i].whole) {
      cell = printable(cell, style_);
      if (width_of(cell) > room) cell = "\n        " + cell;
    } else if (last && !columns_[i].right) {
      cell = printable(cell, style_, room);
    } else {  // a number is never cut: its row gets wider
      cell = pad(columns_[i].right ? cell : printable(cell, style_, widths[i]), widths[i], columns_[i].right);
    }
    used += width_of(cell);
    text += "  " + cell;
  }
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text + "\n";
}

std::string Table::render_titles() const {
  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.push_back(format_ == TableFormat::csv ? quote_csv(column.title) : column.title);
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

std::string markdown_part(const std::string& title, const Table& table) {
  return table.empty() ? "" : "### " + title + "\n\n" + table.render() + "\n";
}

std::string more_line(std::size_t all, std::size_t shown, const std::string& what) {
  if (all <= shown) return "";
  return "  (" + format_count(all - shown) + " more" + (what.empty() ? "" : " " + what) + "; --top shows more)\n";
}

}  // namespace liveset::report
