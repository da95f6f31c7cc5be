// The files of one run: OUT is the trace of the first process that records, each later one gets a file in OUT.d/.
#pragma once
#include <cstdint>
#include <string>

namespace liveset::collect {

// Does the file begin as a trace does? False for what cannot be read.
bool is_trace(const std::string& path);
// Where a symbolic link leads, be it to nothing yet; any other path as it is.
std::string resolved(std::string path);

// Where the first trace goes. Removes what an earlier run wrote: OUT, and the traces in OUT.d/.
std::string make_way(const std::string& output);
// OUT.d/<seq>-<pid>-<start time>.liveset; makes the folder.
std::string further_path(const std::string& output, std::uint32_t sequence, std::int64_t pid, std::uint64_t start_time);

}  // namespace liveset::collect
