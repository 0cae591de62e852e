#include "matgrad/atomic_file.h"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>

#ifndef _WIN32
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

namespace matgrad {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& reason) {
    throw std::invalid_argument(path + ": cannot be written (" + reason + ")");
}

[[noreturn]] void refuse(const std::string& path) { refuse(path, std::strerror(errno)); }

// Where a file called `path` is: behind symbolic links, which may point to a file that does not exist yet.
fs::path behind_links(const std::string& path) {
    fs::path place = path;
    std::error_code error;
    for (int i = 0; fs::is_symlink(fs::symlink_status(place, error)); ++i) {
        if (i == 40) refuse(path, "too many symbolic links");
        place = place.parent_path() / fs::read_symlink(place, error);  // an absolute path replaces the parent
    }
    return place;
}

// The start of the names of the temporary files of a file: the same as in Python, with the CRC-32 of its name.
std::string prefix_of(const fs::path& place) {
    std::uint32_t crc = 0xffffffffu;
    for (const char c : place.filename().string()) {
        crc ^= static_cast<unsigned char>(c);
        for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0xedb88320u : 0);
    }
    char text[32];
    std::snprintf(text, sizeof text, ".matgrad-%08x-", static_cast<unsigned>(~crc));
    return text;
}

fs::path folder_of(const fs::path& place) { return place.has_parent_path() ? place.parent_path() : fs::path("."); }

fs::path temporary_name(const fs::path& place) {
    std::random_device random;
    char text[16];
    std::snprintf(text, sizeof text, "%08x", static_cast<unsigned>(random()));
    return folder_of(place) / (prefix_of(place) + text);
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

// Removes the temporary files of processes that are gone: those that nobody holds locked.
void remove_leftovers(const fs::path& place) {
    std::error_code error;
    const std::string prefix = prefix_of(place);
    for (fs::directory_iterator entry(folder_of(place), error), end; !error && entry != end; entry.increment(error)) {
        if (!entry->path().filename().string().starts_with(prefix)) continue;
        const Handle file(::open(entry->path().c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
        if (file.number >= 0 && ::flock(file.number, LOCK_EX | LOCK_NB) == 0) ::unlink(entry->path().c_str());
    }
}

// A new file beside `place`, locked until it is closed, so that nobody takes it for a leftover; its name becomes `name`.
int open_locked(const fs::path& place, mode_t mode, fs::path& name) {
    while (true) {
        name = temporary_name(place);
        const int file = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (file < 0) return file;
        ::flock(file, LOCK_EX);
        if (::access(name.c_str(), F_OK) == 0) return file;  // it was not removed before it was locked
        ::close(file);
    }
}

void write_all(int file, std::span<const std::byte> bytes, const std::string& path) {
    while (!bytes.empty()) {
        const ssize_t count = ::write(file, bytes.data(), bytes.size());
        if (count < 0 && errno != EINTR) refuse(path);
        if (count > 0) bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
}

#endif

}  // namespace

void check_replaceable(const std::string& path) {
    const fs::path place = behind_links(path);
    std::error_code error;
    const fs::file_status found = fs::status(place, error);
    if (!fs::is_directory(folder_of(place), error)) refuse(path, "there is no folder " + folder_of(place).string());
    if (place.filename().empty() || fs::is_directory(found)) refuse(path, "expected a file, found a folder");
    if (fs::exists(found) && !fs::is_regular_file(found)) refuse(path, "expected a file, found a device, a pipe or a socket");
#ifndef _WIN32
    if (::access(fs::exists(found) ? place.c_str() : folder_of(place).c_str(), W_OK) != 0) refuse(path);
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
    if (!file || error) refuse(path, error ? error.message() : "the disk may be full");
#else
    remove_leftovers(place);
    struct stat before;
    const bool exists = ::stat(place.c_str(), &before) == 0;
    Removal temporary;
    // readable by others only as far as the file to be replaced is
    const Handle file(open_locked(place, exists ? 0600 : 0666, temporary.path));
    if (file.number < 0) refuse(path);
    for (const auto& part : parts) write_all(file.number, part, path);
    if (::fsync(file.number) != 0) refuse(path);
    if (exists) {
        [[maybe_unused]] const int kept = ::fchown(file.number, before.st_uid, before.st_gid);  // as far as that is allowed
        if (::fchmod(file.number, before.st_mode & 07777) != 0) refuse(path);
    }
    if (::rename(temporary.path.c_str(), place.c_str()) != 0) refuse(path);
#endif
    temporary.path.clear();
}

}  // namespace matgrad
