// What runs when the preload is loaded into a program, and when that program ends.
#include "hooks/api/table.h"
#include "hooks/autograd/node_events.h"
#include "hooks/c10/memory_reports.h"
#include "hooks/core/process.h"
#include "hooks/driver/hook.h"
#include "hooks/python/frames.h"
#include "hooks/python/install.h"

namespace {

__attribute__((constructor)) void loaded() {
  liveset::core::process.start();
  liveset::python::start_frames();
  liveset::api::start();
  liveset::autograd::start(&liveset::c10_hook::heap_of);
  liveset::driver::start({&liveset::c10_hook::heap_of, &liveset::c10_hook::phase_now});
  liveset::c10_hook::after_report = liveset::python::ask_interpreter;
}

// Threads may still run and record: nothing is taken down.
__attribute__((destructor)) void exiting() {
  liveset::python::say_exiting();
  liveset::autograd::say_exiting();
  liveset::driver::say_exiting();
  liveset::core::process.say_exiting();
}

}  // namespace
