// Vectors of the instruction set that the kernels are compiled for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "matgrad/kernels.h"

// size in bytes and number of the vector registers
#if defined(__AVX512F__)
#define MATGRAD_VECTOR_BYTES 64
#define MATGRAD_REGISTERS 32
#elif defined(__AVX2__)
#define MATGRAD_VECTOR_BYTES 32
#define MATGRAD_REGISTERS 16
#elif defined(__aarch64__)
#define MATGRAD_VECTOR_BYTES 16
#define MATGRAD_REGISTERS 32
#else
#define MATGRAD_VECTOR_BYTES 16
#define MATGRAD_REGISTERS 16
#endif

namespace matgrad {
namespace {  // every instruction set has its own copy

template <class T>
inline constexpr int lanes = MATGRAD_VECTOR_BYTES / sizeof(T);

template <class T, int n>
struct VectorOf {
    typedef T type __attribute__((vector_size(n * sizeof(T))));
};
template <class T, int n = lanes<T>>
using Vector = typename VectorOf<T, n>::type;

template <class T, int n = lanes<T>>
inline Vector<T, n> load(const T* p) {
    Vector<T, n> v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

template <class T, int n = lanes<T>>
inline void store(T* p, Vector<T, n> v) {
    std::memcpy(p, &v, sizeof v);
}

// Calls f with the start and a constant, the length, of vectors that make up n elements.
template <class T, int L = lanes<T>, class F>
inline void by_vectors(Index start, Index n, F&& f) {
    for (; start + L <= n; start += L) f(start, std::integral_constant<int, L>());
    if constexpr (L > 1) by_vectors<T, L / 2>(start, n, f);
}

// out_j = x_j for n elements, of which a last vector overlaps those before it
template <class T, int L = lanes<T>>
inline void copy_run(T* out, const T* x, Index n) {
    if (n >= L) {
        const Vector<T, L> last = load<T, L>(x + n - L);
        for (Index j = 0; j + L < n; j += L) store<T, L>(out + j, load<T, L>(x + j));
        store<T, L>(out + n - L, last);
    } else if constexpr (L > 1) {
        copy_run<T, L / 2>(out, x, n);
    }
}

template <class T>
inline Vector<T> broadcast(T x) {
    return x - Vector<T>{};  // not x + 0, which differs for x = -0, so that the compiler could not leave it out
}

// The first half of a vector plus its second half
template <class T, int n, int... I>
inline Vector<T, n / 2> sum_of_halves(Vector<T, n> x, std::integer_sequence<int, I...>) {
    return __builtin_shufflevector(x, x, I...) + __builtin_shufflevector(x, x, (n / 2 + I)...);
}

// The sum of all groups of four elements of a vector
template <class T, int n>
inline Vector<T, 4> sum_of_fours(Vector<T, n> x) {
    if constexpr (n == 4)
        return x;
    else
        return sum_of_fours<T, n / 2>(sum_of_halves<T, n>(x, std::make_integer_sequence<int, n / 2>{}));
}

// The sum of the elements of a vector
template <class T>
inline T sum_of(Vector<T> x) {
    if constexpr (lanes<T> == 2) {
        return x[0] + x[1];
    } else {
        const Vector<T, 4> y = sum_of_fours<T, lanes<T>>(x);
        return (y[0] + y[2]) + (y[1] + y[3]);
    }
}

// (a_0, b_0, a_1, b_1, …) from the first halves of a and b, and from their second halves
template <class T, int L, int... I>
inline Vector<T, L> interleave_low(Vector<T, L> a, Vector<T, L> b, std::integer_sequence<int, I...>) {
    return __builtin_shufflevector(a, b, (I % 2 ? L + I / 2 : I / 2)...);
}
template <class T, int L, int... I>
inline Vector<T, L> interleave_high(Vector<T, L> a, Vector<T, L> b, std::integer_sequence<int, I...>) {
    return __builtin_shufflevector(a, b, (I % 2 ? L + L / 2 + I / 2 : L / 2 + I / 2)...);
}

constexpr Index kFetched = 4096;  // how many bytes ahead a row is fetched

// The transpose of a square block: out[j * out_stride + i] = row(i)[j], by interleaving rows log2 times.
template <class T, int L, class Row>
inline void transpose_block(Row&& row, T* out, Index out_stride) {
    constexpr auto all = std::make_integer_sequence<int, L>{};
    Vector<T, L> rows[L], next[L];
#pragma GCC unroll 16
    for (int i = 0; i < L; ++i) rows[i] = load<T, L>(row(i));
#pragma GCC unroll 4
    for (int width = 1; width < L; width *= 2) {
#pragma GCC unroll 16
        for (int i = 0; i < L / 2; ++i) {
            next[2 * i] = interleave_low<T, L>(rows[i], rows[i + L / 2], all);
            next[2 * i + 1] = interleave_high<T, L>(rows[i], rows[i + L / 2], all);
        }
#pragma GCC unroll 16
        for (int i = 0; i < L; ++i) rows[i] = next[i];
    }
#pragma GCC unroll 16
    for (int i = 0; i < L; ++i) store<T, L>(out + i * out_stride, rows[i]);
}

// out = Xᵀ for the columns [first, last) of a matrix X with contiguous rows, from row i on, where row i is row(i): L rows at a
// time in square blocks, then the remaining rows in smaller ones. The few rows of a block are read in order, starting at a column
// from which vectors do not cross cache lines, if there is one, and are fetched ahead into the L2 cache.
template <class T, int L = lanes<T>, class Row>
void transpose_from(T* out, Index out_stride, View<const T> X, Row&& row, Index i, Index first, Index last) {
    const auto single = [&](Index from, Index to) {
        for (Index j = from; j < to; ++j)
            for (Index r = i; r < i + L; ++r) out[j * out_stride + r] = row(r)[j];
    };
    const Index before = X.row_stride % L ? 0 : -(reinterpret_cast<std::intptr_t>(&X(0, first)) / Index(sizeof(T))) & (L - 1);
    const Index start = std::min(first + before, last), end = start + (last - start) / L * L;
    for (; i + L <= X.rows; i += L) {
        single(first, start);
        for (Index j = start; j < end; j += L) {
            const Index later = j + kFetched / Index(sizeof(T));
            const Index next = later < end ? i : i + L, column = later < end ? later : start + later - end;
            if (next + L <= X.rows && column < end)
#pragma GCC unroll 16
                for (int k = 0; k < L; ++k) __builtin_prefetch(row(next + k) + column, 0, 2);
            transpose_block<T, L>([&](int k) { return row(i + k) + j; }, out + j * out_stride + i, out_stride);
        }
        single(end, last);
    }
    if constexpr (L > 1) transpose_from<T, L / 2>(out, out_stride, X, row, i, first, last);
}

template <class T>
void transpose(T* out, Index out_stride, View<const T> X, const Index* rows, Index first, Index last) {
    if (rows)
        transpose_from<T>(out, out_stride, X, [&](Index i) { return X.data + rows[i] * X.row_stride; }, 0, first, last);
    else
        transpose_from<T>(out, out_stride, X, [&](Index i) { return X.data + i * X.row_stride; }, 0, first, last);
}

}  // namespace
}  // namespace matgrad
