// Sums and maxima of rows and columns.
//
// A long sum is the sum of two halves, so that its error grows with the logarithm of its length.
#pragma once

#include <algorithm>

#include "vector.h"

namespace matgrad {
namespace {

constexpr Index kShort = 128;  // elements, or vectors, that are added up one after another
constexpr Index kSums = 1024;  // sums of columns that are kept on the stack

// out_j = Σ_i x_ij for all columns of a matrix with few rows, four rows at a time
template <class T>
void add_few_rows(T* out, View<const T> X) {
    const Index n = X.columns, stride = X.column_stride;
    std::fill(out, out + n, T(0));
    Index i = 0;
    for (; i + 4 <= X.rows; i += 4) {
        const T *a = &X(i, 0), *b = &X(i + 1, 0), *c = &X(i + 2, 0), *d = &X(i + 3, 0);
#pragma GCC ivdep
        for (Index j = 0; j < n; ++j) out[j] += (a[j * stride] + b[j * stride]) + (c[j * stride] + d[j * stride]);
    }
    for (; i < X.rows; ++i) {
        const T* a = &X(i, 0);
#pragma GCC ivdep
        for (Index j = 0; j < n; ++j) out[j] += a[j * stride];
    }
}

// out_j = Σ_i x_ij for all columns, which are at most kSums if there are many rows
template <class T>
void add_rows(T* out, View<const T> X) {
    if (X.rows <= kShort) return add_few_rows(out, X);
    View<const T> rest = X;
    X.rows /= 2, rest.data += X.rows * X.row_stride, rest.rows -= X.rows;
    T sums[kSums];
    add_rows(out, X);
    add_rows(sums, rest);
    for (Index j = 0; j < X.columns; ++j) out[j] += sums[j];
}

// out_j = Σ_i x_ij for the columns [first, last)
template <class T>
void columns_sum(T* out, View<const T> X, Index first, Index last) {
    const Index width = X.rows <= kShort ? last - first : kSums;
    for (Index j = first; j < last; j += width)
        add_rows<T>(out + j, {&X(0, j), X.rows, std::min(width, last - j), X.row_stride, X.column_stride});
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

// Σ_j x_j of a few elements that are `stride` apart
template <class T>
inline T short_sum(const T* x, Index n, Index stride) {
    Vector<T> parts = {};
    Index j = 0;
    if (stride == 1)
        for (; j + lanes<T> <= n; j += lanes<T>) parts += load(x + j);
    else
        for (; j + lanes<T> <= n; j += lanes<T>)
            for (int l = 0; l < lanes<T>; ++l) parts[l] += x[(j + l) * stride];
    T total = sum_of<T>(parts);
    for (; j < n; ++j) total += x[j * stride];
    return total;
}

// Σ_j x_j of any number of them
template <class T>
inline T sum(const T* x, Index n, Index stride) {
    if (n <= kShort * lanes<T>) return short_sum(x, n, stride);
    const Index half = n / 2 / lanes<T> * lanes<T>;
    return sum(x, half, stride) + sum(x + half * stride, n - half, stride);
}

// out_i = Σ_j x_ij for the rows [first, last)
template <class T>
void rows_sum(T* out, Index out_stride, View<const T> X, Index first, Index last) {
    for (Index i = first; i < last; ++i) out[i * out_stride] = sum(&X(i, 0), X.columns, X.column_stride);
}

// The greater of two elements, or of those of two vectors; nan if there is one
template <class V>
inline V greater(V x, V y) {
    return (y > x) | (y != y) ? y : x;
}

// out_i = max_j x_ij for the rows [first, last); nan if there is one
template <class T>
void rows_max(T* out, Index out_stride, View<const T> X, Index first, Index last) {
    constexpr int L = lanes<T>;
    for (Index i = first; i < last; ++i) {
        const T* x = &X(i, 0);
        T largest = *x;
        Index j = 0;
        if (X.column_stride == 1 && X.columns >= L) {
            Vector<T> parts = load(x);
            for (j = L; j + L <= X.columns; j += L) parts = greater(parts, load(x + j));
            for (int l = 0; l < L; ++l) largest = greater(largest, T(parts[l]));
        }
        for (; j < X.columns; ++j) largest = greater(largest, x[j * X.column_stride]);
        out[i * out_stride] = largest;
    }
}

}  // namespace
}  // namespace matgrad
