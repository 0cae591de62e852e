// Products with sparse matrices. The batch is contiguous: a row of B is one feature of all examples.
//
// The elements of a row of the result, or as many as there are registers for, are accumulated in
// registers. The last vector of a row may overlap the one before it: so no element beyond the row is read.
#pragma once

#include <algorithm>

#include "vector.h"

namespace matgrad {
namespace {

constexpr int kAccumulators = 8;

// Where the vector v of `count` vectors starts in a row of n ≥ L elements.
template <class T>
inline Index vector_start(Index v, Index count, Index n) {
    return v == count - 1 ? n - lanes<T> : v * lanes<T>;
}

// Calls f(std::integral_constant<int, count>{}, start) for the vectors of a row, a few at a time.
template <class F, int... I>
inline void with_count(int count, F&& f, std::integer_sequence<int, I...>) {
    ((count == I + 1 ? (f(std::integral_constant<int, I + 1>{}), 0) : 0), ...);
}

// Elements [from, from + count vectors) of the rows of W B
template <class T, int count>
void accumulate_rows(T* out, const SparseIndex& W, const T* values, const T* B, Index n, const Index* starts, Index first,
                     Index last) {
    for (Index i = first; i < last; ++i) {
        Vector<T> sums[count];
#pragma GCC unroll 8
        for (int v = 0; v < count; ++v) sums[v] = Vector<T>{};
        for (std::int64_t p = W.starts[i]; p < W.starts[i + 1]; ++p) {
            const Vector<T> w = broadcast(values[W.positions ? W.positions[p] : p]);
            const T* b = B + static_cast<Index>(W.columns[p]) * n;
#pragma GCC unroll 8
            for (int v = 0; v < count; ++v) sums[v] += w * load(b + starts[v]);
        }
#pragma GCC unroll 8
        for (int v = 0; v < count; ++v) store(out + i * n + starts[v], sums[v]);
    }
}

template <class T>
void sparse_product(T* out, const SparseIndex& W, const T* values, const T* B, Index n, Index first, Index last) {
    constexpr int L = lanes<T>;
    if (n < L) {
        for (Index i = first; i < last; ++i) {
            T* row = out + i * n;
            std::fill_n(row, n, T(0));
            for (std::int64_t p = W.starts[i]; p < W.starts[i + 1]; ++p) {
                const T w = values[W.positions ? W.positions[p] : p];
                const T* b = B + static_cast<Index>(W.columns[p]) * n;
                for (Index j = 0; j < n; ++j) row[j] += w * b[j];
            }
        }
        return;
    }
    const Index vectors = (n + L - 1) / L;
    const Index passes = (vectors + kAccumulators - 1) / kAccumulators;
    for (Index pass = 0; pass < passes; ++pass) {
        const Index from = vectors * pass / passes, to = vectors * (pass + 1) / passes;
        Index starts[kAccumulators];
        for (Index v = from; v < to; ++v) starts[v - from] = vector_start<T>(v, vectors, n);
        with_count(
            static_cast<int>(to - from),
            [&](auto count) { accumulate_rows<T, count()>(out, W, values, B, n, starts, first, last); },
            std::make_integer_sequence<int, kAccumulators>{});
    }
}

// The sum of the elements of a vector, by adding its halves again and again
template <class T, int width, class V, int... I>
inline T sum_of_halves(V x, std::integer_sequence<int, I...>) {
    if constexpr (width == 1) {
        return x[0];
    } else {
        typedef T Half __attribute__((vector_size(width / 2 * sizeof(T))));
        const Half low = __builtin_shufflevector(x, x, I...), high = __builtin_shufflevector(x, x, (I + width / 2)...);
        if constexpr (width == 2)
            return low[0] + high[0];
        else
            return sum_of_halves<T, width / 2>(low + high, std::make_integer_sequence<int, width / 4>{});
    }
}
template <class T>
inline T sum_of(Vector<T> x) {
    return sum_of_halves<T, lanes<T>>(x, std::make_integer_sequence<int, lanes<T> / 2>{});
}

// Σ_j a_j·b_j over `count` vectors; those elements of a that overlap are 0
template <class T, int count>
inline Vector<T> products(const Vector<T>* a, const T* b, const Index* starts) {
    Vector<T> sum = a[0] * load(b + starts[0]);
#pragma GCC unroll 8
    for (int v = 1; v < count; ++v) sum += a[v] * load(b + starts[v]);
    return sum;
}

template <class T, int count>
void sample_rows(T* out, T beta, const T* C, T alpha, const T* A, const T* B, Index n, const SparseIndex& W, const Index* starts,
                 Index overlap, Index first, Index last) {
    for (Index i = first; i < last; ++i) {
        Vector<T> a[count];
        for (int v = 0; v < count; ++v) a[v] = load(A + i * n + starts[v]);
        for (Index l = 0; l < overlap; ++l) a[count - 1][l] = 0;
        for (std::int64_t p = W.starts[i]; p < W.starts[i + 1]; ++p) {
            const T* b = B + static_cast<Index>(W.columns[p]) * n;
            const T dot = sum_of<T>(products<T, count>(a, b, starts));
            out[p] = beta != 0 ? beta * C[p] + alpha * dot : alpha * dot;
        }
    }
}

template <class T>
void sampled_product(T* out, T beta, const T* C, T alpha, const T* A, const T* B, Index n, const SparseIndex& W, Index first,
                     Index last) {
    constexpr int L = lanes<T>;
    if (n < L) {
        for (Index i = first; i < last; ++i)
            for (std::int64_t p = W.starts[i]; p < W.starts[i + 1]; ++p) {
                T dot = 0;
                for (Index j = 0; j < n; ++j) dot += A[i * n + j] * B[static_cast<Index>(W.columns[p]) * n + j];
                out[p] = beta != 0 ? beta * C[p] + alpha * dot : alpha * dot;
            }
        return;
    }
    const Index vectors = (n + L - 1) / L;
    const Index passes = (vectors + kAccumulators - 1) / kAccumulators;
    for (Index pass = 0; pass < passes; ++pass) {
        const Index from = vectors * pass / passes, to = vectors * (pass + 1) / passes;
        Index starts[kAccumulators];
        for (Index v = from; v < to; ++v) starts[v - from] = vector_start<T>(v, vectors, n);
        const Index overlap = to == vectors ? vectors * L - n : 0;
        with_count(
            static_cast<int>(to - from),
            [&](auto count) {
                sample_rows<T, count()>(out, pass ? T(1) : beta, pass ? out : C, alpha, A, B, n, W, starts, overlap, first, last);
            },
            std::make_integer_sequence<int, kAccumulators>{});
    }
}

}  // namespace
}  // namespace matgrad
