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

// The first row that starts at or after `element`.
Index row_at(const SparseIndex& index, std::int64_t element) {
    return std::lower_bound(index.starts, index.starts + index.rows, element) - index.starts;
}

}  // namespace

Index SparseIndex::begin(const Worker& worker) const { return row_at(*this, worker.begin(starts[rows])); }
Index SparseIndex::end(const Worker& worker) const {
    return worker.index + 1 == worker.count ? rows : row_at(*this, worker.end(starts[rows]));
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
