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

// out_j = max_i x_ij for the columns [first, last); nan where there is one
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

// out_i = Σ_j x_ij for the rows [first, last)
template <class T>
void rows_sum(T* out, Index out_stride, View<const T> X, Index first, Index last) {
    constexpr int L = lanes<T>;
    for (Index i = first; i < last; ++i) {
        const T* x = X.data + i * X.row_stride;
        T parts[L] = {};
        Index j = 0;
        for (; j + L <= X.columns; j += L)
            for (int l = 0; l < L; ++l) parts[l] += x[(j + l) * X.column_stride];
        T sum = 0;
        for (; j < X.columns; ++j) sum += x[j * X.column_stride];
        for (int l = 0; l < L; ++l) sum += parts[l];
        out[i * out_stride] = sum;
    }
}

// out_i = max_j x_ij for the rows [first, last); nan where there is one
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
