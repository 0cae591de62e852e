// Rows of stack(X Eᵀ, P), which are read from X and added to it by runs of elements.
#pragma once

#include <algorithm>

#include "vector.h"

namespace matgrad {
namespace {

// out_j = x_j for n elements; a vector may overlap the one before it
template <class T>
inline void copy_run(T* out, const T* x, Index n) {
    constexpr int L = lanes<T>;
    if (n >= L) {
        const Vector<T> last = load(x + n - L);
        for (Index j = 0; j + L < n; j += L) store(out + j, load(x + j));
        return store(out + n - L, last);
    }
    for (Index j = 0; j < n; ++j) out[j] = x[j];
}

// The rows [row, row + rows) of A, which has windows, one after the other in `out`.
template <class T>
View<const T> windows_of(const Product<T>& P, Index row, Index rows, Index k, T* out) {
    const Windows& W = P.windows;
    for (Index i = 0; i < rows; ++i) {
        const Index n = (row + i) / W.count, p = (row + i) % W.count;
        const T* x = &P.A(n, 0);
        for (const Run* run = W.runs + W.starts[p]; run < W.runs + W.starts[p + 1]; ++run)
            if (run->column < 0)
                std::fill_n(out + i * k + run->first, run->size, T(0));
            else
                copy_run(out + i * k + run->first, x + run->column, run->size);
    }
    return {out, rows, k, k, 1};
}

// Rows [first, last) of columns [column, column + columns) of B, which has windows, as a block, padded with zeros.
template <class T>
void copy_windows(const Product<T>& P, Index first, Index last, Index column, Index columns, Index block, T* out) {
    const Windows& W = P.windows;
    for (Index r = first; r < last; ++r, out += block) {
        const T* x = &P.B(r / W.count, 0);
        for (const Run* run = W.runs + W.starts[r % W.count]; run < W.runs + W.starts[r % W.count + 1]; ++run) {
            const Index from = std::max<Index>(run->first, column), to = std::min(run->first + Index(run->size), column + columns);
            if (from >= to) continue;
            if (run->column < 0)
                std::fill(out + from - column, out + to - column, T(0));
            else
                copy_run(out + from - column, x + run->column + from - run->first, to - from);
        }
        std::fill(out + columns, out + block, T(0));
    }
}

// Adds a window p to the row y that it is a window of.
template <class T>
void add_runs(const Windows& W, Index p, const T* window, T* y) {
    for (const Run* run = W.runs + W.starts[p]; run < W.runs + W.starts[p + 1]; ++run) {
        if (run->column < 0) continue;
        const T* x = window + run->first;
        T* to = y + run->column;
        Index j = 0;
        for (; j + lanes<T> <= run->size; j += lanes<T>) store(to + j, load(to + j) + load(x + j));
        for (; j < run->size; ++j) to[j] += x[j];
    }
}

// Calls f with the start and a constant, the length, of vectors that make up n elements.
template <class T, int L = lanes<T>, class F>
inline void by_vectors(Index start, Index n, F&& f) {
    for (; start + L <= n; start += L) f(start, std::integral_constant<int, L>());
    if constexpr (L > 1) by_vectors<T, L / 2>(start, n, f);
}

// The windows of a band are the elements of a vector.
template <class T>
void windows_max(T* y, const T* x, const Windows& W) {
    for (const Band* band = W.bands; band < W.bands + W.band_count; ++band) {
        const std::int32_t* columns = W.columns + band->first * W.size;
        by_vectors<T>(0, band->size, [&](Index p, auto length) {
            constexpr int L = length;
            Vector<T, L> largest = load<T, L>(x + columns[0] + p);
            for (Index j = 1; j < W.size; ++j) {
                const Vector<T, L> a = load<T, L>(x + columns[j] + p);
                largest = (a > largest) | (a != a) ? a : largest;
            }
            store<T, L>(y + band->first + p, largest);
        });
    }
}

template <class T>
void share(T* dx, const T* x, const T* y, const T* d, const Windows& W) {
    for (const Band* band = W.bands; band < W.bands + W.band_count; ++band) {
        const std::int32_t* columns = W.columns + band->first * W.size;
        by_vectors<T>(0, band->size, [&](Index p, auto length) {
            constexpr int L = length;
            const Vector<T, L> largest = load<T, L>(y + band->first + p), zero = {}, one = zero + T(1);
            Vector<T, L> number = zero;
            for (Index j = 0; j < W.size; ++j) number += load<T, L>(x + columns[j] + p) - largest >= zero ? one : zero;
            const Vector<T, L> h = load<T, L>(d + band->first + p) * (one / number);
            for (Index j = 0; j < W.size; ++j) {
                const Vector<T, L> is_greatest = load<T, L>(x + columns[j] + p) - largest >= zero ? one : zero;
                T* to = dx + columns[j] + p;
                store<T, L>(to, load<T, L>(to) + h * is_greatest);
            }
        });
    }
}

}  // namespace
}  // namespace matgrad
