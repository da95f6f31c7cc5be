// Opens a *.liveset file, checks it, and decodes it chunk by chunk. Never trusts a length; reads a file without a
// footer or with a torn tail as far as it goes and says so in health(). open() looks at every packet's checksum, so
// that what health() says is complete before the first chunk is decoded; chunks that cannot be read are not in
// chunks().
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "viewer/trace/records.h"
#include "viewer/trace/result.h"

namespace liveset::trace {

// Bits for ColumnId values of proto/trace.proto: column_bit(id).
using ColumnMask = std::uint32_t;
inline constexpr ColumnMask all_columns = 0xffffffffU;

class TraceFile {
 public:
  struct State;  // trace_state.h, for this folder
  // Errors: ErrorKind::unreadable when there is no readable header (missing, a directory, not a trace, newer major
  // version).
  static Result<TraceFile> open(const std::string& path);
  // The trace that lies at `path`, under the name of the file that it was made from: what path() and errors say.
  static Result<TraceFile> open_as(const std::string& path, const std::string& name);
  TraceFile(TraceFile&&) noexcept;
  TraceFile& operator=(TraceFile&&) noexcept;
  ~TraceFile();

  const std::string& path() const;
  std::uint64_t file_bytes() const;
  const Header& header() const;
  const Dictionary& dictionary() const;
  const Health& health() const;
  const std::vector<ChunkInfo>& chunks() const;  // in order; from the footer, or rebuilt
  std::uint64_t events() const;
  std::uint64_t allocations() const;
  std::uint64_t end_time_ns() const;

  // Looks up the functions of native frames in the files that they lie in, for at most two seconds (viewer/trace/symbols.h). For commands
  // that show stacks; costs nothing where there are no such frames.
  void name_native_frames();

  // Decodes chunk `index`. `mask` names the columns wanted; KIND is always decoded. Buffers of `out` are reused. May be
  // called from several threads at once. An error means that the bytes are whole and yet make no sense, or that the
  // file has changed.
  Status read_chunk(std::size_t index, ColumnMask mask, Columns& out) const;

 private:
  friend Result<struct Facts> read_facts(const TraceFile& file);
  TraceFile();
  std::unique_ptr<State> state_;
};

// Calls `visit` for every event of chunks [first_chunk, last_chunk) in order; stops early when it returns false. Not
// for hot paths.
Status for_each_event(const TraceFile& file, std::size_t first_chunk, std::size_t last_chunk,
                      const std::function<bool(const Event&)>& visit);
Status for_each_event(const TraceFile& file, const std::function<bool(const Event&)>& visit);

}  // namespace liveset::trace
