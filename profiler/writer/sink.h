// Where a trace's bytes go: a file, or in tests something that fills up on purpose.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace liveset::writer {

class Sink {
 public:
  Sink() = default;
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;
  virtual ~Sink() = default;
  // Appends all of `bytes` or leaves no trace of them.
  virtual bool append(std::string_view bytes) = 0;
  // Makes sure that the next `bytes` bytes can be appended. True also where a medium cannot promise it.
  virtual bool reserve(std::uint64_t bytes) = 0;
  // Gives back what is reserved and not used, and closes. False when the medium reports a late error.
  virtual bool close() = 0;
};

// A new file at `path`, replacing an older one. Null with `error` set when it cannot be made.
std::unique_ptr<Sink> open_file_sink(const std::string& path, std::string* error);

}  // namespace liveset::writer
