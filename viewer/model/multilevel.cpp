#include "viewer/model/multilevel.h"

namespace liveset::model {

Result<Schedule> multilevel_schedule(const Model&, const Policy& policy) {
  return Error{ErrorKind::usage, "", {}, "policy '" + policy.text + "' is not known yet", ""};
}

}  // namespace liveset::model
