// Sums and maxima of rows and columns.
#pragma once

#include <algorithm>

#include "vector.h"

namespace matgrad {
namespace {

// out_j = Σ_i x_ij for the columns [first, last)
template <class T>
void columns_sum(T* out, View<const T> X, Index first, Index last) {
    std::fill(out + first, out + last, T(0));
    for (Index i = 0; i < X.rows; ++i) {
        const T* x = X.data + i * X.row_stride;
#pragma GCC ivdep
        for (Index j = first; j < last; ++j) out[j] += x[j * X.column_stride];
    }
}

// out_j = max_i x_ij for the columns [first, last); nan if there is one
template <class T>
void columns_max(T* out, View<const T> X, Index first, Index last) {
    for (Index j = first; j < last; ++j) out[j] = X(0, j);
    for (Index i = 1; i < X.rows; ++i) {
        const T* x = X.data + i * X.row_stride;
#pragma GCC ivdep
        for (Index j = first; j < last; ++j) {
            const T a = x[j * X.column_stride];
            out[j] = a > out[j] || a != a ? a : out[j];
        }
    }
}

// Σ_j x_j of n contiguous elements
template <class T>
inline T sum(const T* x, Index n) {
    Vector<T> parts = {};
    Index j = 0;
    for (; j + lanes<T> <= n; j += lanes<T>) parts += load(x + j);
    T total = sum_of<T>(parts);
    for (; j < n; ++j) total += x[j];
    return total;
}

// out_i = Σ_j x_ij for the rows [first, last)
template <class T>
void rows_sum(T* out, Index out_stride, View<const T> X, Index first, Index last) {
    for (Index i = first; i < last; ++i) {
        if (X.column_stride == 1) {
            out[i * out_stride] = sum(X.data + i * X.row_stride, X.columns);
            continue;
        }
        T parts[lanes<T>] = {};
        for (Index j = 0; j < X.columns; ++j) parts[j % lanes<T>] += X(i, j);
        out[i * out_stride] = sum(parts, lanes<T>);
    }
}

// out_i = max_j x_ij for the rows [first, last); nan if there is one
template <class T>
void rows_max(T* out, Index out_stride, View<const T> X, Index first, Index last) {
    for (Index i = first; i < last; ++i) {
        T largest = X(i, 0);
        for (Index j = 1; j < X.columns; ++j) {
            const T a = X(i, j);
            largest = a > largest || a != a ? a : largest;
        }
        out[i * out_stride] = largest;
    }
}

}  // namespace
}  // namespace matgrad
