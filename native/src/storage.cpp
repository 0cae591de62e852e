// The memory of a program: that of its own buffers, and what the caller has bound to those with names.
#include "storage.h"

#include <cstring>

#include "matgrad/errors.h"

#if __has_include(<sys/mman.h>)
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace matgrad {

namespace {

constexpr Index kShortRun = 8, kShortBand = 3;        // elements or windows, on average, below which they are not used
constexpr std::size_t kLarge = std::size_t(1) << 22;  // bytes, from which on memory is in large pages

// Memory in large pages where the system has them: rows of large matrices are read in random order. Not std::aligned_alloc, which
// Windows lacks.
Memory allocate(std::size_t bytes) {
    Memory memory(::operator new(bytes, kAlignment));
#if defined(MADV_HUGEPAGE)
    const auto start = reinterpret_cast<std::uintptr_t>(memory.get()), page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const std::uintptr_t first = (start + page - 1) / page * page, last = (start + bytes) / page * page;
    if (bytes >= kLarge) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);  // it is well without, too
#endif
    return memory;
}

}  // namespace

Storage::Storage(Program& program, Layout& layout) : program_(program), layout_(layout), pointers_(program.buffers.size()) {
    for (std::size_t i = 0; i < program.buffers.size(); ++i) {
        if (!program.buffers[i].name.empty()) continue;
        const std::size_t bytes = element_size(program.buffers[i].dtype) * layout.size(static_cast<int>(i));
        owned_.push_back(reserve(bytes));
        pointers_[i] = owned_.back().get();
        std::memset(pointers_[i], 0, bytes);  // the padding of a row stays 0
    }
}

// With padding, second copies and scratch, a program may ask for more than the sum of its buffers.
Memory Storage::reserve(std::size_t bytes) {
    reserved_ = checked_sum(reserved_, static_cast<Index>(bytes));
    program_.limits.check_memory(reserved_, "the program");
    return allocate(bytes);
}

int Storage::add(const Shape& shape, const std::string& dtype) {
    program_.buffers.push_back({shape, dtype, ""});
    layout_.add(shape);
    owned_.push_back(reserve(element_size(dtype) * shape[0] * shape[1]));
    pointers_.push_back(owned_.back().get());
    return static_cast<int>(pointers_.size()) - 1;
}

const Windows* Storage::windows(const std::string& support, Index count, bool are_bands) {
    const auto [found, is_new] = windows_.try_emplace({support, count});
    if (is_new) {
        constexpr Index kMost = sizeof(Run) + 3 * sizeof(std::int32_t) + sizeof(Band);  // bytes for an element
        reserved_ = checked_sum(reserved_, checked_product({kMost, program_.supports.at(support)[0]}));
        program_.limits.check_memory(reserved_, "the program");
    }
    WindowTable& table = found->second;
    table.count = count;
    table.are_bands |= are_bands;
    return &table.windows;
}

void Storage::bind_support(const std::string& name, const Support& support) {
    for (auto& [key, table] : windows_)
        if (key.first == name) table.fill(support.by_rows);
    supports[name] = support;
}

// Elements that follow each other in a row of X make a run, and so do those that are 0.
void WindowTable::fill(const SparseIndex& E) {
    const Index size = count ? E.rows / count : E.rows;
    runs.clear(), starts.assign(1, 0);
    for (Index r = 0; r < E.rows; ++r) {
        const auto number = E.starts[r + 1] - E.starts[r];
        if (number > 1 && !count) return void(windows = {});
        if (number > 1) refuse("expected windows, found a sum of elements in row " + std::to_string(r) + " of a support");
        const std::int32_t column = number ? E.columns[E.starts[r]] : -1, first = static_cast<std::int32_t>(r % size);
        Run* last = first ? &runs.back() : nullptr;
        if (last && (column < 0 ? last->column < 0 : last->column >= 0 && last->column + last->size == column))
            ++last->size;
        else
            runs.push_back({first, column, 1});
        if (first == size - 1) starts.push_back(static_cast<std::int32_t>(runs.size()));
    }
    columns.clear(), bands.clear(), band_of.clear();
    if (are_bands || (count && static_cast<Index>(runs.size()) * kShortRun > E.rows)) find_bands(size);
    windows = {runs.data(), starts.data(), count, size};
    if (!bands.empty() && (are_bands || static_cast<Index>(bands.size()) * kShortBand < count))
        windows.columns = columns.data(), windows.bands = bands.data(), windows.band_count = static_cast<Index>(bands.size()),
        windows.band_of = band_of.data();
}

void WindowTable::find_bands(Index size) {
    for (const Run& run : runs)
        for (std::int32_t j = 0; j < run.size; ++j) {
            if (run.column < 0 && are_bands) refuse("expected windows without zeros where their maxima are wanted");
            columns.push_back(run.column < 0 ? -1 : run.column + j);
        }
    for (Index p = 0; p < count; ++p) {
        bool goes_on = p > 0;
        for (Index j = 0; goes_on && j < size; ++j) {
            const std::int32_t before = columns[(p - 1) * size + j];
            goes_on = columns[p * size + j] == (before < 0 ? -1 : before + 1);
        }
        if (!goes_on) bands.push_back({static_cast<std::int32_t>(p), 0});
        ++bands.back().size;
        band_of.push_back(static_cast<std::int32_t>(bands.size()) - 1);
    }
}

void Storage::check_constant(int buffer) const {
    if (program_.writes(buffer)) refuse("the program changes the input " + readable(program_.buffers[buffer].name));
}

void Storage::check_bound() const {
    for (const auto& [name, support] : supports)
        if (!support.by_rows.starts) refuse("the support " + readable(name) + " is not bound");
    for (std::size_t i = 0; i < pointers_.size(); ++i)
        if (!pointers_[i]) refuse("the input " + readable(program_.buffers[i].name) + " is not bound");
}

template <class N>
N Storage::read(const Scalar& scalar) const {
    if (scalar.buffer < 0) return std::visit([](auto x) { return static_cast<N>(x); }, scalar.number);
    const std::string& dtype = program_.buffers[scalar.buffer].dtype;
    const void* p = pointers_[scalar.buffer];
    if (dtype == "float32") return static_cast<N>(*static_cast<const float*>(p));
    if (dtype == "float64") return static_cast<N>(*static_cast<const double*>(p));
    if (dtype == "int32") return static_cast<N>(*static_cast<const std::int32_t*>(p));
    return static_cast<N>(*static_cast<const std::int64_t*>(p));
}
template float Storage::read<float>(const Scalar&) const;
template double Storage::read<double>(const Scalar&) const;
template std::int64_t Storage::read<std::int64_t>(const Scalar&) const;

template <class N>
void Storage::write(int buffer, N x) const {
    const std::string& dtype = program_.buffers[buffer].dtype;
    void* p = pointers_[buffer];
    if (dtype == "float32") *static_cast<float*>(p) = static_cast<float>(x);
    if (dtype == "float64") *static_cast<double*>(p) = static_cast<double>(x);
    if (dtype == "int32") *static_cast<std::int32_t*>(p) = static_cast<std::int32_t>(x);
    if (dtype == "int64") *static_cast<std::int64_t*>(p) = static_cast<std::int64_t>(x);
}
template void Storage::write<double>(int, double) const;
template void Storage::write<std::int64_t>(int, std::int64_t) const;

}  // namespace matgrad
