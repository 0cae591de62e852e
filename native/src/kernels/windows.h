// Rows of stack(X Eᵀ, P), which are read from X and added to it by runs of elements.
#pragma once

#include <algorithm>

#include "reductions.h"

namespace matgrad {
namespace {

// Elements [from, to) of window p of a row x.
template <class T>
inline void copy_window(const Windows& W, Index p, const T* x, Index from, Index to, T* out) {
    for (const Run* run = W.runs + W.starts[p]; run < W.runs + W.starts[p + 1]; ++run) {
        const Index first = std::max<Index>(run->first, from), last = std::min(run->first + Index(run->size), to);
        if (first >= last) continue;
        if (run->column < 0)
            std::fill(out + first - from, out + last - from, T(0));
        else
            copy_run(out + first - from, x + run->column + first - run->first, last - first);
    }
}

// How many windows from p on have elements that follow those of p, of `most` ones.
inline Index following(const Windows& W, Index p, Index most) {
    const Band& band = W.bands[W.band_of[p]];
    return std::min(most, band.first + band.size - p);
}

// Element j of n windows from p on, for each j, `distance` apart.
template <class T, int n>
void copy_columns(const Windows& W, Index p, const T* x, T* out, Index distance) {
    const std::int32_t* columns = W.columns + p * W.size;
    for (Index j = 0; j < W.size; ++j, out += distance)
        for (int i = 0; i < n; ++i) out[i] = columns[j] < 0 ? T(0) : x[columns[j] + i];
}
template <class T, int... n>
auto copy_columns_of(std::integer_sequence<int, n...>) {
    using Copy = void (*)(const Windows&, Index, const T*, T*, Index);
    static constexpr Copy table[] = {copy_columns<T, n + 1>...};
    return table;
}

// The rows [row, row + rows) of A, which has windows, in `out`: one after the other or, where there are bands, all first elements,
// then all second ones, and so on.
template <class T, int panel>
View<const T> windows_of(const Product<T>& P, Index row, Index rows, Index k, T* out) {
    const Windows& W = P.windows;
    Index n = row / W.count, p = row % W.count;
    for (Index i = 0; i < rows;) {
        const T* x = &P.A(n, 0);
        Index next = 1;
        if (W.bands) {
            next = following(W, p, rows - i);
            copy_columns_of<T>(std::make_integer_sequence<int, panel>{})[next - 1](W, p, x, out + i, rows);
        } else {
            copy_window(W, p, x, 0, k, out + i * k);
        }
        i += next, p += next;
        if (p == W.count) p = 0, ++n;
    }
    return W.bands ? View<const T>{out, rows, k, 1, rows} : View<const T>{out, rows, k, k, 1};
}

// Elements [column, column + columns) of L windows from p on, as rows.
template <class T, int L>
void copy_block_of_windows(const Windows& W, Index p, const T* x, Index column, Index columns, Index block, T* out) {
    static constexpr T zeros[L] = {};
    const std::int32_t* place = W.columns + p * W.size + column;
    for (Index j = 0; j < columns; j += L)
        transpose_block<T, L>([&](int i) { return j + i < columns && place[j + i] >= 0 ? x + place[j + i] : zeros; }, out + j,
                              block);
}

// Rows [first, last) of columns [column, column + columns) of B, which has windows, as a block, padded with anything.
template <class T>
void copy_windows(const Product<T>& P, Index first, Index last, Index column, Index columns, Index block, T* out) {
    const Windows& W = P.windows;
    constexpr int L = lanes<T>;
    Index n = first / W.count, p = first % W.count;
    for (Index r = first; r < last;) {
        const T* x = &P.B(n, 0);
        Index next = W.bands ? following(W, p, last - r) : 1;
        if (next >= L) {
            copy_block_of_windows<T, L>(W, p, x, column, columns, block, out);
            next = L;
        } else if (next >= L / 2 && L > 2) {
            copy_block_of_windows<T, std::max(L / 2, 2)>(W, p, x, column, columns, block, out);
            next = L / 2;
        } else {
            copy_window(W, p, x, column, column + columns, out);
            next = 1;
        }
        r += next, p += next, out += next * block;
        if (p == W.count) p = 0, ++n;
    }
}

// Adds a window p to the row y that it is a window of.
template <class T>
void add_runs(const Windows& W, Index p, const T* window, T* y) {
    for (const Run* run = W.runs + W.starts[p]; run < W.runs + W.starts[p + 1]; ++run) {
        if (run->column < 0) continue;
        const T* x = window + run->first;
        T* to = y + run->column;
        by_vectors<T>(0, run->size,
                      [&](Index j, auto length) { store<T, length>(to + j, load<T, length>(to + j) + load<T, length>(x + j)); });
    }
}

template <class T>
void gather(T* y, const T* x, Index n, const Windows& W) {
    copy_window(W, 0, x, 0, n, y);
}

template <class T>
void scatter(T* y, const T* x, Index n, const Windows& W) {
    std::fill_n(y, n, T(0));
    add_runs(W, 0, x, y);
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
                largest = greater(largest, load<T, L>(x + columns[j] + p));
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
