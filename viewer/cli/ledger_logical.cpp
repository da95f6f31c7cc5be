#include "viewer/cli/ledger.h"

namespace liveset::cli {

Status print_logical_ledger(const trace::TraceFile& file, const ledger::Range&, Context&) {
  return Error{ErrorKind::usage, file.path(), std::nullopt, "the logical ledger is being built", ""};
}

}  // namespace liveset::cli
