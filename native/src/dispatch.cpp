// Which kernels to use: those for the fastest instruction set that the machine supports.
#include <algorithm>
#include <stdexcept>

#include "matgrad/kernels.h"

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

std::int64_t size_of(const SparseIndex& index, bool rows_count) { return index.starts[index.rows] + (rows_count ? index.rows : 0); }

}  // namespace

Index SparseIndex::begin(const Worker& worker, bool rows_count) const {
    return row_at(*this, worker.begin(size_of(*this, rows_count)), rows_count);
}
Index SparseIndex::end(const Worker& worker, bool rows_count) const {
    return worker.index + 1 == worker.count ? rows : row_at(*this, worker.end(size_of(*this, rows_count)), rows_count);
}

namespace {

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
        {"avx2", __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"), &avx2::single_precision,
         &avx2::double_precision},
        {"avx512",
         __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512bw"),
         &avx512::single_precision, &avx512::double_precision},
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
