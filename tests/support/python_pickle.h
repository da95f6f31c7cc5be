// Pickles as Python writes them.
#pragma once
#include <cstdlib>
#include <string>

#include "tests/support/temporary_folder.h"

namespace liveset::test {

inline bool has_python() {
  static const bool found = std::system("python3 -c pass >/dev/null 2>&1") == 0;
  return found;
}

// Runs `program` with `pickle`, `out` (a name in the folder) and, for short, `dump(value, protocol)`. True when it succeeded.
inline bool python_writes(const std::string& out, const std::string& program) {
  const std::string script = out + ".py";
  write_file(script, "import pickle\nout = " + ("'" + out + "'") +
                         "\ndef dump(value, protocol=4):\n  pickle.dump(value, open(out, 'wb'), protocol=protocol)\n" + program + "\n");
  return std::system(("python3 " + script).c_str()) == 0;
}

}  // namespace liveset::test
