// Other tools' files as traces. An importer is one pair of files and one line in importer.cpp.
//
// Whatever it reads, an importer writes a trace as a recorder would (profiler/writer), so that every report reads it as any other, and
// says in the attribute "imported" of the first event what the file knew: which counter the sizes of blocks are, how much of the past it
// tells, and where it contradicts itself. viewer/ledger/imported.h reads that.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "profiler/writer/sink.h"
#include "viewer/trace/result.h"

namespace liveset::imports {

struct Importer {
  const char* name;  // as --from takes it
  const char* reads;
  bool (*recognises)(std::string_view beginning);  // of a file: its first bytes, up to `beginning_bytes`
  Status (*run)(const std::string& path, std::unique_ptr<writer::Sink> sink);
};
inline constexpr std::size_t beginning_bytes = 4096;

std::span<const Importer> importers();
// Null when nobody reads such a file; that of a trace of ours, too.
const Importer* importer_of(std::string_view beginning);
const Importer* importer_named(std::string_view name);

// One trace file, finished. Errors: what the importer refuses; a trace that cannot be written.
Status import_snapshot(const std::string& path, std::unique_ptr<writer::Sink> sink);
bool looks_like_snapshot(std::string_view beginning);
Status import_dtr_log(const std::string& path, std::unique_ptr<writer::Sink> sink);
bool looks_like_dtr_log(std::string_view beginning);

}  // namespace liveset::imports
