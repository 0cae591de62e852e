// The memory of a program: that of its own buffers, and what the caller has bound to those with names.
#pragma once

#include <map>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "layout.h"

namespace matgrad {

constexpr std::align_val_t kAlignment{kCacheLine};

struct Free {
    void operator()(void* p) const { ::operator delete(p, kAlignment); }
};
using Memory = std::unique_ptr<void, Free>;

// A scalar: a number, or the content of a buffer.
struct Scalar {
    Number number = 0.0;
    int buffer = -1;
};

// The windows of stack(X Eᵀ, P) on a support E, which are known when that is bound.
struct WindowTable {
    Index count = 0;         // P; 0 is 1, without windows where an element is a sum
    bool are_bands = false;  // wanted, for maxima
    std::vector<Run> runs;
    std::vector<std::int32_t> starts, columns, band_of;
    std::vector<Band> bands;
    Windows windows;

    // Throws std::invalid_argument if an element of a window is a sum, or 0 where there are bands.
    void fill(const SparseIndex& E);
    void find_bands(Index size);
};

class Storage {
public:
    Storage(Program& program, Layout& layout);

    Memory reserve(std::size_t bytes);                      // throws std::invalid_argument if the program asks for too much
    Index reserved() const { return reserved_; }            // bytes so far
    int add(const Shape& shape, const std::string& dtype);  // a buffer for one more matrix

    void* operator[](int buffer) const { return pointers_[buffer]; }
    void bind(int buffer, const void* data) { pointers_[buffer] = const_cast<void*>(data); }
    void check_constant(int buffer) const;  // throws if the program changes it
    void check_bound() const;               // throws if an input or a support is not bound

    // A scalar as a number of type N, and a number as the content of a buffer: whole numbers stay exact.
    template <class N>
    N read(const Scalar& scalar) const;
    template <class N>
    void write(int buffer, N x) const;

    std::map<std::string, Support> supports;
    void bind_support(const std::string& name, const Support& support);
    const Windows* windows(const std::string& support, Index count, bool are_bands = false);  // P of them in each row

private:
    Program& program_;
    Layout& layout_;
    std::vector<void*> pointers_;  // of the buffers
    std::vector<Memory> owned_;
    std::map<std::pair<std::string, Index>, WindowTable> windows_;
    Index reserved_ = 0;
};

}  // namespace matgrad
