#include "matgrad/limits.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <optional>

#include "matgrad/errors.h"

#if __has_include(<unistd.h>)
#include <unistd.h>
#endif

namespace matgrad {

namespace {

using Amount = std::ptrdiff_t;

constexpr const char *kMemoryVariable = "MATGRAD_MEMORY_LIMIT", *kWorkVariable = "MATGRAD_WORK_LIMIT";
constexpr Amount kMostMemory = Amount(1) << 40;
constexpr Amount kWork = 10'000'000'000'000;                                // minutes on two cores
constexpr double kMemoryPerByte = 100, kWorkPerByte = 1e5;                  // of a file: 1e5 is a batch of some 100,000 examples
constexpr Amount kFileMemory = Amount(1) << 28, kFileWork = 1'000'000'000;  // what any file may ask for

// The number in an environment variable such as 500M or 1.5 GB.
std::optional<Amount> allowed(const char* variable) {
    const char* found = std::getenv(variable);
    if (!found || !*found) return std::nullopt;
    std::string text = found;
    if (text.ends_with('B') || text.ends_with('b')) text.pop_back();
    constexpr std::string_view units = "kmgtKMGT";
    const auto unit = text.empty() ? std::string_view::npos : units.find(text.back());
    if (unit != std::string_view::npos) text.pop_back();
    if (text.ends_with(' ')) text.pop_back();
    const std::optional<double> number = parse_number(text);
    const double factor = unit == std::string_view::npos ? 1.0 : static_cast<double>(Amount(1) << 10 * (unit % 4 + 1));
    if (!number || !(*number >= 0 && *number * factor < 0x1p60))
        refuse(std::string(variable) + ": expected a number such as 500M or 8G, found " + readable(found));
    return static_cast<Amount>(*number * factor);
}

Amount memory_of_machine() {
    Amount memory = kMostMemory;
#if defined(_SC_PHYS_PAGES)
    if (const Amount bytes = checked_product({sysconf(_SC_PHYS_PAGES), sysconf(_SC_PAGE_SIZE)}); bytes > 0)
        memory = std::min(memory, bytes);
#endif
    for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
        Amount bytes = 0;
        if (std::ifstream(path) >> bytes && bytes > 0) memory = std::min(memory, bytes);  // not if it says max
    }
    return memory;
}

std::string in_words(Amount bytes) {
    const bool is_large = bytes >= 1 << 30;
    char text[64];
    std::snprintf(text, sizeof text, "%.3g %s", static_cast<double>(bytes) / (is_large ? 1 << 30 : 1 << 20),
                  is_large ? "GB" : "MB");
    return text;
}

}  // namespace

Limits Limits::of_machine() {
    const std::optional<Amount> memory = allowed(kMemoryVariable), work = allowed(kWorkVariable);
    return {memory ? *memory : memory_of_machine(), work.value_or(kWork)};
}

Limits Limits::of_file(std::uintmax_t bytes) {
    Limits limits = of_machine();
    const auto in_proportion = [&](double factor, Amount least, Amount most) {
        const double amount = factor * static_cast<double>(bytes);
        return amount > static_cast<double>(most) ? most : std::min(most, std::max(least, static_cast<Amount>(amount)));
    };
    if (!allowed(kMemoryVariable)) limits.memory = in_proportion(kMemoryPerByte, kFileMemory, limits.memory);
    if (!allowed(kWorkVariable)) limits.work = in_proportion(kWorkPerByte, kFileWork, limits.work);
    return limits;
}

void Limits::check_memory(Amount bytes, const std::string& what) const {
    if (bytes > memory)
        refuse(what + " asks for " + in_words(bytes) + " of memory, expected at most " + in_words(memory) +
               "; the environment variable " + kMemoryVariable + ", such as 8G, allows more");
}

void Limits::check_work(Amount found, const std::string& what) const {
    char text[64];
    std::snprintf(text, sizeof text, "%.3g multiplications, expected at most %.3g", static_cast<double>(found),
                  static_cast<double>(work));
    if (found > work) refuse(what + " asks for " + text + "; the environment variable " + kWorkVariable + " allows more");
}

Amount checked_product(std::initializer_list<Amount> factors) {
    if (std::find(factors.begin(), factors.end(), 0) != factors.end()) return 0;
    Amount product = 1;
    for (Amount factor : factors)
        if (__builtin_mul_overflow(product, factor, &product)) return std::numeric_limits<Amount>::max();
    return product;
}

Amount checked_sum(Amount a, Amount b) {
    Amount sum = 0;
    return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<Amount>::max() : sum;
}

}  // namespace matgrad
