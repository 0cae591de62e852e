// Vectors of the instruction set that a file is compiled for.
#pragma once

#include <algorithm>
#include <cstring>
#include <utility>

#include "matgrad/kernels.h"

// bytes and number of the vector registers
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

template <class T>
inline Vector<T> broadcast(T x) {
    return x - Vector<T>{};  // and not x + 0, which is another number for x = -0: the compiler would add
}

// (a_0, b_0, a_1, b_1, …) from the first halves of a and b, and from their second halves
template <class T, int... I>
inline Vector<T> interleave_low(Vector<T> a, Vector<T> b, std::integer_sequence<int, I...>) {
    return __builtin_shufflevector(a, b, (I % 2 ? lanes<T> + I / 2 : I / 2)...);
}
template <class T, int... I>
inline Vector<T> interleave_high(Vector<T> a, Vector<T> b, std::integer_sequence<int, I...>) {
    return __builtin_shufflevector(a, b, (I % 2 ? lanes<T> + lanes<T> / 2 + I / 2 : lanes<T> / 2 + I / 2)...);
}

// The transpose of a square block: out[j * out_stride + i] = in[i * in_stride + j], by interleaving rows log2 times.
template <class T>
inline void transpose_block(const T* in, Index in_stride, T* out, Index out_stride) {
    constexpr int L = lanes<T>;
    constexpr auto all = std::make_integer_sequence<int, L>{};
    Vector<T> rows[L], next[L];
#pragma GCC unroll 16
    for (int i = 0; i < L; ++i) rows[i] = load(in + i * in_stride);
#pragma GCC unroll 4
    for (int width = 1; width < L; width *= 2) {
#pragma GCC unroll 16
        for (int i = 0; i < L / 2; ++i) {
            next[2 * i] = interleave_low<T>(rows[i], rows[i + L / 2], all);
            next[2 * i + 1] = interleave_high<T>(rows[i], rows[i + L / 2], all);
        }
#pragma GCC unroll 16
        for (int i = 0; i < L; ++i) rows[i] = next[i];
    }
#pragma GCC unroll 16
    for (int i = 0; i < L; ++i) store(out + i * out_stride, rows[i]);
}

// out = Xᵀ for the columns [first, last) of a matrix X whose rows are contiguous: square blocks, and what is left
template <class T>
void transpose(T* out, Index out_stride, View<const T> X, Index first, Index last) {
    constexpr int L = lanes<T>;
    for (Index i = 0; i < X.rows; i += L)  // few rows at a time are read in order, which the processor sees ahead
        for (Index j = first; j < last; j += L) {
            if (i + L <= X.rows && j + L <= last) {
                transpose_block(&X(i, j), X.row_stride, out + j * out_stride + i, out_stride);
            } else {
                for (Index c = j; c < std::min(last, j + L); ++c)
                    for (Index r = i; r < std::min(X.rows, i + L); ++r) out[c * out_stride + r] = X(r, c);
            }
        }
}

}  // namespace
}  // namespace matgrad
