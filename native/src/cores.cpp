// How many cores a process may use: those that the system lets it run on, or fewer if its CPU quota is less.
#include "matgrad/cores.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#endif

namespace matgrad {

namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();

int allowed_cores() {
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
    return std::max(1u, std::thread::hardware_concurrency());
}

// The quota that a folder of control groups sets, in cores: version 2 has it in one file, version 1 in two.
double quota_in(const std::string& folder) {
    double quota, period;
    if (std::ifstream both(folder + "/cpu.max"); both >> quota >> period && quota > 0 && period > 0) return quota / period;
    std::ifstream first(folder + "/cpu.cfs_quota_us"), second(folder + "/cpu.cfs_period_us");
    return first >> quota && second >> period && quota > 0 && period > 0 ? quota / period : kNone;
}

// The least quota of the control groups of this process, and of the groups that these are in.
double quota(const std::string& root) {
    double least = kNone;
    std::ifstream groups(root + "/proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {  // number:controllers:path
        const std::size_t first = line.find(':'), second = line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
        const bool is_version_2 = controllers == ",,";
        if (!is_version_2 && controllers.find(",cpu,") == std::string::npos) continue;
        const std::string top = root + "/sys/fs/cgroup" + (is_version_2 ? "" : "/cpu");
        std::string path = line.substr(second + 1);
        for (; !path.empty(); path.erase(path.rfind('/') == std::string::npos ? 0 : path.rfind('/')))
            least = std::min(least, quota_in(top + path));
        least = std::min(least, quota_in(top));
    }
    return least;
}

}  // namespace

int cores(const std::string& root) {
    const int allowed = allowed_cores();
    return std::max(1, static_cast<int>(std::min<double>(allowed, std::ceil(quota(root)))));
}

}  // namespace matgrad
