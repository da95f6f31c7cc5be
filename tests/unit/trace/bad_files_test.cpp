// What cannot be opened is refused in one line: what, where, what to try.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include "tests/support/opened_trace.h"
#include "tests/support/trace_builder.h"

namespace liveset::trace {
namespace {

using test::TraceBuilder;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class BadFiles : public test::OpenedTraceTest {
 protected:
  Error refused(const std::string& path) {
    Result<TraceFile> file = TraceFile::open(path);
    EXPECT_FALSE(file) << path << " was opened";
    if (file) return {};
    EXPECT_EQ(file.error().kind, ErrorKind::unreadable);
    EXPECT_THAT(file.error().message(), AllOf(HasSubstr(path), Not(HasSubstr("\n"))));
    return file.error();
  }
  Error refused_bytes(const std::string& bytes) {
    test::write_file(path_, bytes);
    return refused(path_);
  }
};

TEST_F(BadFiles, Missing) {
  EXPECT_THAT(refused(folder_.file("none.liveset")).message(), AllOf(HasSubstr("no such file"), HasSubstr("liveset run")));
}

TEST_F(BadFiles, Empty) { EXPECT_THAT(refused_bytes("").message(), HasSubstr("the file is empty")); }

TEST_F(BadFiles, Directory) { EXPECT_THAT(refused(folder_.path().string()).message(), HasSubstr("is a directory")); }

TEST_F(BadFiles, APipeIsNotWaitedFor) {
  const std::string pipe = folder_.file("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(refused(pipe).message(), HasSubstr("not a regular file"));
}

TEST_F(BadFiles, Png) {
  const Error error = refused_bytes(std::string("\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16));
  EXPECT_EQ(error.offset, 0);
  EXPECT_THAT(error.message(), HasSubstr("not a liveset trace: it begins with 89 50 4e 47"));
}

TEST_F(BadFiles, OneByte) { EXPECT_THAT(refused_bytes("\n").message(), HasSubstr("not a liveset trace: it begins with 0a")); }

TEST_F(BadFiles, ANewerMajorVersionNamesBothVersions) {
  proto::Header header = test::plain_header();
  header.set_format_major(2);
  header.set_format_minor(4);
  header.set_tool_version("9.1.0");
  EXPECT_THAT(
      refused_bytes(TraceBuilder().header(header).bytes()).message(),
      AllOf(HasSubstr("written in format 2.4 by liveset 9.1.0"), HasSubstr("reads formats up to 1.x"), HasSubstr("use a newer liveset")));
}

TEST_F(BadFiles, ANewerMajorVersionMayHaveChangedTheChecksum) {
  proto::Header header = test::plain_header();
  header.set_format_major(2);
  std::string bytes = TraceBuilder().header(header).bytes();
  bytes.back() = static_cast<char>(bytes.back() + 1);
  EXPECT_THAT(refused_bytes(bytes).message(), HasSubstr("written in format 2." + std::to_string(proto::format_minor)));
}

TEST_F(BadFiles, HeaderWithAFlippedBit) {
  std::string bytes = TraceBuilder().header().bytes();
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
  EXPECT_THAT(refused_bytes(bytes).message(), HasSubstr("header is damaged or torn"));
}

TEST_F(BadFiles, HeaderCutShort) {
  const std::string bytes = TraceBuilder().header().bytes();
  EXPECT_THAT(refused_bytes(bytes.substr(0, bytes.size() - 1)).message(), HasSubstr("header is damaged or torn"));
}

TEST_F(BadFiles, AnotherMagic) {
  proto::Header header = test::plain_header();
  header.set_magic("liveset model");
  EXPECT_THAT(refused_bytes(TraceBuilder().header(header).bytes()).message(), HasSubstr("not a liveset trace"));
}

TEST_F(BadFiles, AHeaderThatIsNotTheFirstPacket) {
  EXPECT_THAT(refused_bytes(TraceBuilder().chunk(test::chunk_of({1})).header().bytes()).message(), HasSubstr("header is damaged"));
}

}  // namespace
}  // namespace liveset::trace
