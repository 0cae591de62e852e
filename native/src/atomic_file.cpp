#include "matgrad/atomic_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>

#ifndef _WIN32
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

namespace matgrad {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void fail(const std::string& path, const std::string& reason) {
    throw std::invalid_argument(path + ": cannot be written (" + reason + ")");
}

[[noreturn]] void fail(const std::string& path) { fail(path, std::strerror(errno)); }

// Where a file called `path` is: behind symbolic links, which may point to a file that does not exist yet.
fs::path behind_links(const std::string& path) {
    fs::path place = path;
    std::error_code error;
    for (int i = 0; fs::is_symlink(fs::symlink_status(place, error)); ++i) {
        if (i == 40) fail(path, "too many symbolic links");
        place = place.parent_path() / fs::read_symlink(place, error);  // an absolute path replaces the parent
    }
    return place;
}

fs::path folder_of(const fs::path& place) { return place.has_parent_path() ? place.parent_path() : fs::path("."); }

fs::path temporary_name(const fs::path& place) {
    std::random_device random;
    char text[16];
    std::snprintf(text, sizeof text, "%08x", static_cast<unsigned>(random()));
    return folder_of(place) / (std::string(".matgrad-") + text);
}

// Removes the file that a path names when it goes out of scope; unless that is the empty path.
struct Removal {
    fs::path path;

    ~Removal() {
        std::error_code error;
        if (!path.empty()) fs::remove(path, error);
    }
};

#ifndef _WIN32

struct Handle {
    int number;

    explicit Handle(int number) : number(number) {}
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;
    ~Handle() {
        if (number >= 0) ::close(number);
    }
};

void write_all(int file, std::span<const std::byte> bytes, const std::string& path) {
    while (!bytes.empty()) {
        const ssize_t count = ::write(file, bytes.data(), bytes.size());
        if (count < 0 && errno != EINTR) fail(path);
        if (count > 0) bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
}

#endif

}  // namespace

void check_replaceable(const std::string& path) {
    const fs::path place = behind_links(path);
    std::error_code error;
    const fs::file_status found = fs::status(place, error);
    if (!fs::is_directory(folder_of(place), error)) fail(path, "there is no folder " + folder_of(place).string());
    if (place.filename().empty() || fs::is_directory(found)) fail(path, "expected a file, found a folder");
    if (fs::exists(found) && !fs::is_regular_file(found)) fail(path, "expected a file, found a device");
#ifndef _WIN32
    if (::access(fs::exists(found) ? place.c_str() : folder_of(place).c_str(), W_OK) != 0) fail(path);
#endif
}

void replace_file(const std::string& path, const std::vector<std::span<const std::byte>>& parts) {
    check_replaceable(path);
    const fs::path place = behind_links(path);
#ifdef _WIN32
    Removal temporary{temporary_name(place)};
    std::ofstream file(temporary.path, std::ios::binary);
    for (const auto& part : parts)
        file.write(reinterpret_cast<const char*>(part.data()), static_cast<std::streamsize>(part.size()));
    file.close();
    std::error_code error;
    if (file) fs::rename(temporary.path, place, error);
    if (!file || error) fail(path, error ? error.message() : "the disk may be full");
#else
    struct stat before;
    const bool exists = ::stat(place.c_str(), &before) == 0;
    Removal temporary;
    const fs::path name = temporary_name(place);
    const Handle file(::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, exists ? before.st_mode & 0777 : 0666));
    if (file.number < 0) fail(path);
    temporary.path = name;
    for (const auto& part : parts) write_all(file.number, part, path);
    if (::fsync(file.number) != 0) fail(path);
    if (exists && ::fchmod(file.number, before.st_mode & 0777) != 0) fail(path);
    if (::rename(temporary.path.c_str(), place.c_str()) != 0) fail(path);
#endif
    temporary.path.clear();
}

}  // namespace matgrad
