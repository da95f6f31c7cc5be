#include "viewer/report/text.h"

#include <gtest/gtest.h>

namespace liveset::report {
namespace {

TEST(Numbers, AreForPeople) {
  EXPECT_EQ(format_bytes(0, false), "0 B");
  EXPECT_EQ(format_bytes(1023, false), "1023 B");
  EXPECT_EQ(format_bytes(1024, false), "1.00 KiB");
  EXPECT_EQ(format_bytes(28386344, false), "27.07 MiB");
  EXPECT_EQ(format_bytes(80ULL << 30, false), "80.00 GiB");
  EXPECT_EQ(format_bytes(3ULL << 40, false), "3.00 TiB");
  EXPECT_EQ(format_bytes(5ULL << 50, false), "5.00 PiB");
  EXPECT_EQ(format_bytes(28386344, true), "28,386,344");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000000), "1,000,000");
  EXPECT_EQ(format_time(999), "999 ns");
  EXPECT_EQ(format_time(12'345'678), "12.346 ms");
  EXPECT_EQ(format_time(1'500'000'000), "1.500 s");
  EXPECT_EQ(format_percent(1, 3), "33.3%");
  EXPECT_EQ(format_percent(1, 0), "-");
}

TEST(Printable, KeepsTheTerminalSafe) {
  EXPECT_EQ(printable("a\x1b[31mb\nc", {}), "a?[31mb?c");
  EXPECT_EQ(printable("a\xc2\x9b[31m", {}), "a??[31m") << "CSI in one character";
  EXPECT_EQ(printable("\xff\xc3(\xe2\x82", {}),
            "??"
            "(??")
      << "no UTF-8";
  Style ascii;
  ascii.ascii = true;
  EXPECT_EQ(printable("h\xc3\xa9llo", ascii), "h?llo");
  EXPECT_EQ(printable("h\xc3\xa9llo", {}), "h\xc3\xa9llo");
}

TEST(Printable, CutsTheMiddle) {
  EXPECT_EQ(printable("transformer.h.31.attn", {}, 13), "trans....attn");
  EXPECT_LE(printable("transformer.h.31.attn", {}, 13).size(), 13U);
  EXPECT_EQ(printable("short", {}, 13), "short");
  EXPECT_EQ(printable("\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9", {}, 8),
            "\xc3\xa9\xc3\xa9...\xc3\xa9\xc3\xa9\xc3\xa9");
}

Table sample(TableFormat format, Style style = {}) {
  Table table({{"bytes", true}, {"share", true}, {"who"}}, format, style);
  table.row({Cell::bytes(2048), Cell::percent(1, 2), Cell::words("a,b|c\"d")});
  table.row({Cell::bytes(7), Cell::percent(0, 2), Cell::words("x")});
  return table;
}

// The end tells values apart.
TEST(ShortName, KeepsTheEndAndTheLastModules) {
  const std::string name = "GPT.bs.0.ln1/NativeLayerNormBackward0.input";
  EXPECT_EQ(short_name(name, 60), name);
  EXPECT_EQ(short_name(name, name.size()), name);
  EXPECT_EQ(short_name(name, 34), "GPT.bs.0.ln1/NativeLayerNorm.input");
  EXPECT_EQ(short_name(name, 33), "...bs.0.ln1/NativeLayerNorm.input");
  EXPECT_EQ(short_name(name, 29), "...ln1/NativeLayerNorm.input");
  EXPECT_EQ(short_name(name, 24), "...NativeLayerNorm.input");
  EXPECT_EQ(short_name(name, 12), "...orm.input");
  EXPECT_EQ(short_name("GPT/checkpoint:2/AddmmBackward0.mat1@1", 22), "...Addmm.mat1@1");
  EXPECT_EQ(short_name("Backward/BackwardCompatible.x", 20), "...kwardCompatible.x") << "a node that is only called so";
  EXPECT_EQ(short_name("a name without parts that is long", 12), "...t is long");
  EXPECT_EQ(short_name("a/b.c.d.e.f.g.h/i.j.k.l.m.n.o", 12), "...k.l.m.n.o") << "behind the last '/' no part is left out whole";
}

TEST(ShortName, OfLongNames) {
  std::string one, parts, dots, bytes;
  for (int i = 0; i < 500'000; ++i) {
    one += "n";
    parts += "a/";
    dots += "b.";
    bytes += "\x80\xc3\xa9";
  }
  EXPECT_EQ(short_name(one, 12), "...nnnnnnnnn");
  EXPECT_EQ(short_name(parts + "x", 12), "...a/a/a/a/x");
  EXPECT_EQ(short_name(dots + "x", 12), "...b.b.b.b.x");
  EXPECT_EQ(short_name(dots + "/x", 12), "...b.b.b./x");
  EXPECT_EQ(short_name(parts + one, 12), "...nnnnnnnnn");
  EXPECT_EQ(short_name("nnnn\xc3\xa9" + one, 500'004), "...\xc3\xa9" + one);
  EXPECT_TRUE(short_name(bytes, 12).ends_with("\x80\xc3\xa9"));
}

TEST(Tables, AlignAsText) {
  EXPECT_EQ(sample(TableFormat::text).render(),
            "     bytes  share  who\n"
            "  2.00 KiB  50.0%  a,b|c\"d\n"
            "       7 B   0.0%  x\n");
}

TEST(Tables, AreExactAndQuotedAsCsv) {
  EXPECT_EQ(sample(TableFormat::csv).render(),
            "bytes,share,who\n"
            "2048,50.0000,\"a,b|c\"\"d\"\n"
            "7,0.0000,x\n");
}

TEST(Tables, EscapePipesInMarkdown) {
  EXPECT_EQ(sample(TableFormat::md).render(),
            "| bytes | share | who |\n"
            "| --: | --: | --- |\n"
            "| 2.00 KiB | 50.0% | a,b\\|c\"d |\n"
            "| 7 B | 0.0% | x |\n");
}

TEST(Tables, NeverCutANumber) {
  Style narrow;
  narrow.columns = 40;
  Table fixed_widths({{"kind", false, 5}, {"bytes", true, 8}, {"where"}}, TableFormat::text, narrow);
  EXPECT_EQ(fixed_widths.render_row({Cell::words("alloc"), Cell::bytes(1020 << 10), Cell::words("encoder.layers.0.attention")}),
            "  alloc  1020.00 KiB  encoder...ttention\n");
  Table free_widths({{"who"}, {"bytes", true}, {"peak", true}}, TableFormat::text, narrow);
  free_widths.row({Cell::words(std::string(50, 'x')), Cell::bytes(1020 << 10), Cell::bytes(1023 << 10)});
  EXPECT_EQ(free_widths.render(), "  who                 bytes         peak\n  xxxx...xxxxx  1020.00 KiB  1023.00 KiB\n");
}

TEST(Wrapped, BreaksBetweenWords) {
  Style narrow;
  narrow.columns = 26;
  EXPECT_EQ(wrapped("memory that the driver takes for itself", narrow, 4), "memory that the driver\n    takes for itself");
  EXPECT_EQ(wrapped("", narrow, 4), "");
}

TEST(Tables, KeepToTheWidth) {
  Style narrow;
  narrow.columns = 40;
  Table table({{"bytes", true}, {"who"}}, TableFormat::text, narrow);
  table.row({Cell::bytes(1), Cell::words(std::string(100, 'x'))});
  const std::string text = table.render();
  std::size_t longest = 0, begin = 0;
  for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) longest = std::max(longest, end - begin);
  EXPECT_EQ(longest, 40U);
}

}  // namespace
}  // namespace liveset::report
