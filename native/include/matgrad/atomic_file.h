// Files that are written completely or not at all, as `matgrad.foundation.writing` does in Python.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace matgrad {

// Throws std::invalid_argument unless a file can be written at the path: for a folder or a device, and where there is no folder.
void check_replaceable(const std::string& path);

// Writes the parts, one after the other, to the file at the path when they are complete. A symbolic link stays, and its target
// is replaced; a replaced file keeps its mode.
void replace_file(const std::string& path, const std::vector<std::span<const std::byte>>& parts);

}  // namespace matgrad
