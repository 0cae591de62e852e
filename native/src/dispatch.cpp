// Which kernels to use: those for the fastest instruction set that the machine supports.
#include <algorithm>
#include <stdexcept>

#include "matgrad/kernels.h"

#if defined(MATGRAD_IS_X86_64)
#include <cpuid.h>
#endif

namespace matgrad {

namespace baseline {
extern const Kernels<float> single_precision;
extern const Kernels<double> double_precision;
}  // namespace baseline

#if defined(MATGRAD_IS_X86_64)
namespace avx2 {
extern const Kernels<float> single_precision;
extern const Kernels<double> double_precision;
}  // namespace avx2
namespace avx512 {
extern const Kernels<float> single_precision;
extern const Kernels<double> double_precision;
}  // namespace avx512
#endif

namespace {

// The first row before which there are at least `count` elements or, if rows count too, rows and elements.
Index row_at(const SparseIndex& index, std::int64_t count, bool rows_count) {
    Index first = 0, last = index.rows;
    while (first < last) {
        const Index middle = first + (last - first) / 2;
        if (index.starts[middle] + (rows_count ? middle : 0) < count)
            first = middle + 1;
        else
            last = middle;
    }
    return first;
}

std::int64_t size_of(const SparseIndex& index, bool rows_count) {
    return index.starts[index.rows] + (rows_count ? index.rows : 0);
}

}  // namespace

Index SparseIndex::begin(const Worker& worker, bool rows_count) const {
    return row_at(*this, worker.begin(size_of(*this, rows_count)), rows_count);
}
Index SparseIndex::end(const Worker& worker, bool rows_count) const {
    return worker.index + 1 == worker.count ? rows : row_at(*this, worker.end(size_of(*this, rows_count)), rows_count);
}

namespace {

#if defined(MATGRAD_IS_X86_64)
constexpr unsigned kFma = 1u << 12, kXgetbv = 1u << 27;                                   // of leaf 1, register c
constexpr unsigned kAvx2 = 1u << 5, kAvx512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;  // of leaf 7, register b: F, DQ, BW, VL
constexpr unsigned kSavesAvx = 0x06;
#if defined(__APPLE__)
constexpr unsigned kSavesAvx512 = kSavesAvx;  // macOS saves the rest from its first use on, and does not say so before
#else
constexpr unsigned kSavesAvx512 = 0xe6;
#endif

// Whether the processor has the instructions, and the system saves their registers when it switches threads. Not
// __builtin_cpu_supports, which needs a library that clang-cl does not link.
bool has(unsigned instructions, unsigned saved) {
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & (kFma | kXgetbv)) != (kFma | kXgetbv)) return false;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & saved) != saved || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    return (b & instructions) == instructions;
}
#endif

struct InstructionSet {
    const char* name;
    bool is_supported;
    const Kernels<float>* single_precision;
    const Kernels<double>* double_precision;
};

// slowest first
std::vector<InstructionSet> all() {
    return {
        {"baseline", true, &baseline::single_precision, &baseline::double_precision},
#if defined(MATGRAD_IS_X86_64)
        {"avx2", has(kAvx2, kSavesAvx), &avx2::single_precision, &avx2::double_precision},
        {"avx512", has(kAvx2 | kAvx512, kSavesAvx512), &avx512::single_precision, &avx512::double_precision},
#endif
    };
}

InstructionSet find(const std::string& name) {
    const InstructionSet* found = nullptr;
    const auto sets = all();
    std::string known;
    for (const auto& set : sets) {
        if (!set.is_supported) continue;
        known += (known.empty() ? "" : ", ") + std::string(set.name);
        if (name.empty() || name == set.name) found = &set;
    }
    if (!found) throw std::invalid_argument("instruction set '" + name + "': expected one that this machine supports: " + known);
    return *found;
}

}  // namespace

std::vector<std::string> instruction_sets() {
    std::vector<std::string> names;
    for (const auto& set : all())
        if (set.is_supported) names.push_back(set.name);
    return names;
}

template <>
const Kernels<float>& kernels<float>(const std::string& name) {
    return *find(name).single_precision;
}

template <>
const Kernels<double>& kernels<double>(const std::string& name) {
    return *find(name).double_precision;
}

}  // namespace matgrad
