// What runs when the preload is loaded into a program, and when that program ends.
#include "hooks/api/table.h"
#include "hooks/core/process.h"

namespace {

__attribute__((constructor)) void loaded() {
  liveset::core::process.start();
  liveset::api::start();
}

// Threads may still run and record: nothing is taken down.
__attribute__((destructor)) void exiting() { liveset::core::process.say_exiting(); }

}  // namespace
