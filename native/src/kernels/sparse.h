// Products with sparse matrices. The batch is contiguous: a row of B is one feature of all examples.
//
// Rows are padded with zeros to whole vectors, `stride` elements. The elements of a row of the result, or as
// many as there are registers for, are accumulated in registers.
#pragma once

#include <algorithm>

#include "vector.h"

namespace matgrad {
namespace {

constexpr int kAccumulators = 8;
constexpr int kAhead = 4;  // elements whose row of B is fetched into the cache before it is read

// Calls f(std::integral_constant<int, count>{}).
template <class F, int... I>
inline void with_count(int count, F&& f, std::integer_sequence<int, I...>) {
    ((count == I + 1 ? (f(std::integral_constant<int, I + 1>{}), 0) : 0), ...);
}

// Calls f(count, start) for the vectors of a row of n elements, a few at a time.
template <class T, class F>
inline void in_passes(Index n, F&& f) {
    const Index vectors = (n + lanes<T> - 1) / lanes<T>, passes = (vectors + kAccumulators - 1) / kAccumulators;
    for (Index pass = 0; pass < passes; ++pass) {
        const Index from = vectors * pass / passes, to = vectors * (pass + 1) / passes;
        with_count(
            static_cast<int>(to - from), [&](auto count) { f(count, from * lanes<T>); },
            std::make_integer_sequence<int, kAccumulators>{});
    }
}

template <class T, int count>
inline void fetch(const T* b) {
    for (int i = 0; i < count * MATGRAD_VECTOR_BYTES; i += 64) __builtin_prefetch(reinterpret_cast<const char*>(b) + i);
}

// The elements [start, start + count vectors) of rows of W B
template <class T, int count>
void sum_rows(T* out, const SparseIndex& W, const T* values, const T* B, Index stride, Index start, Index first, Index last) {
    const std::int64_t end = W.starts[last];
    for (Index i = first; i < last; ++i) {
        Vector<T> sums[count];
#pragma GCC unroll 8
        for (int v = 0; v < count; ++v) sums[v] = Vector<T>{};
        for (std::int64_t p = W.starts[i]; p < W.starts[i + 1]; ++p) {
            if (p + kAhead < end) fetch<T, count>(B + static_cast<Index>(W.columns[p + kAhead]) * stride + start);
            const Vector<T> w = broadcast(values[W.positions ? W.positions[p] : p]);
            const T* b = B + static_cast<Index>(W.columns[p]) * stride + start;
#pragma GCC unroll 8
            for (int v = 0; v < count; ++v) sums[v] += w * load(b + v * lanes<T>);
        }
#pragma GCC unroll 8
        for (int v = 0; v < count; ++v) store(out + i * stride + start + v * lanes<T>, sums[v]);
    }
}

template <class T>
void sparse_product(T* out, const SparseIndex& W, const T* values, const T* B, Index n, Index stride, Index first, Index last) {
    in_passes<T>(n, [&](auto count, Index start) {
        sum_rows<T, decltype(count)::value>(out, W, values, B, stride, start, first, last);
    });
}

// The sum of the elements of a vector
template <class T>
inline T sum_of(Vector<T> x) {
    T parts[lanes<T>];
    store(parts, x);
    T sum = 0;
    for (int l = 0; l < lanes<T>; ++l) sum += parts[l];
    return sum;
}

// The vector whose elements are, by turns, sums of two elements of a and of two elements of b
template <class T>
inline Vector<T> folded(Vector<T> a, Vector<T> b) {
    constexpr auto all = std::make_integer_sequence<int, lanes<T>>{};
    return interleave_low<T>(a, b, all) + interleave_high<T>(a, b, all);
}

// The sums of the elements of four vectors: folded twice, their parts stand as (a, c, b, d), again and again
template <class T>
inline void sums_of(Vector<T> a, Vector<T> b, Vector<T> c, Vector<T> d, T* sums) {
    T parts[lanes<T>];
    store(parts, folded<T>(folded<T>(a, b), folded<T>(c, d)));
    for (int k = 0; k < 4; ++k) sums[k] = 0;
    for (int l = 0; l < lanes<T>; l += 4) {
        sums[0] += parts[l];
        sums[2] += parts[l + 1];
        sums[1] += parts[l + 2];
        sums[3] += parts[l + 3];
    }
}

// Σ_j a_j·b_j as a vector of sums
template <class T, int count>
inline Vector<T> products(const Vector<T>* a, const T* b) {
    Vector<T> sum = a[0] * load(b);
#pragma GCC unroll 8
    for (int v = 1; v < count; ++v) sum += a[v] * load(b + v * lanes<T>);
    return sum;
}

// out = β·C + α·Σ_j a_ij·b_kj over `count` vectors from `start`, for the stored elements (i, k) of rows of W
template <class T, int count>
void sample_rows(T* out, T beta, const T* C, T alpha, const T* A, const T* B, Index stride, Index start, const SparseIndex& W,
                 Index first, Index last) {
    const std::int64_t end = W.starts[last];
    const auto row = [&](std::int64_t p) { return B + static_cast<Index>(W.columns[p]) * stride + start; };
    const auto put = [&](std::int64_t p, T dot) { out[p] = beta != 0 ? beta * C[p] + alpha * dot : alpha * dot; };
    for (Index i = first; i < last; ++i) {
        Vector<T> a[count];
#pragma GCC unroll 8
        for (int v = 0; v < count; ++v) a[v] = load(A + i * stride + start + v * lanes<T>);
        std::int64_t p = W.starts[i];
        if constexpr (lanes<T> >= 4)
            for (; p + 4 <= W.starts[i + 1]; p += 4) {
                for (int k = kAhead; k < kAhead + 4; ++k)
                    if (p + k < end) fetch<T, count>(row(p + k));
                T sums[4];
                sums_of<T>(products<T, count>(a, row(p)), products<T, count>(a, row(p + 1)), products<T, count>(a, row(p + 2)),
                           products<T, count>(a, row(p + 3)), sums);
                for (int k = 0; k < 4; ++k) put(p + k, sums[k]);
            }
        for (; p < W.starts[i + 1]; ++p) put(p, sum_of<T>(products<T, count>(a, row(p))));
    }
}

template <class T>
void sampled_product(T* out, T beta, const T* C, T alpha, const T* A, const T* B, Index n, Index stride, const SparseIndex& W,
                     Index first, Index last) {
    in_passes<T>(n, [&](auto count, Index start) {  // the later passes add to what the first one has left
        sample_rows<T, decltype(count)::value>(out, start ? T(1) : beta, start ? out : C, alpha, A, B, stride, start, W, first, last);
    });
}

}  // namespace
}  // namespace matgrad
