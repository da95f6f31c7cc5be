// Schedules with more than one level: revolve and rotor.
#pragma once
#include "viewer/model/schedule.h"

namespace liveset::model {

// The model must be a chain of layers: each reads only what the one before it made.
Result<Schedule> multilevel_schedule(const Model& model, const Policy& policy);

}  // namespace liveset::model
