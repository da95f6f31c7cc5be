// The table that liveset.h finds by name in the preload.
#pragma once

namespace liveset::api {

// After core::process.start(): tells programs where the recording flag is.
void start();

}  // namespace liveset::api
