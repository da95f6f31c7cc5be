// What the stand-in driver offers its sister libraries, in the test's own process: estimates are kept, memory is the host's.
#pragma once
#include <map>
#include <string>

// Estimates since the last call: "what: detail" -> count.
std::map<std::string, int> take_estimates();
