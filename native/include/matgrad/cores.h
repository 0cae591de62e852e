// How many cores this process may use.
#pragma once

#include <string>

namespace matgrad {

// The cores that the system lets it run on, or fewer if the CPU quota of its control groups is less, rounded up. The files of
// Linux that tell the quota are those under `root`.
int cores(const std::string& root = "");

}  // namespace matgrad
