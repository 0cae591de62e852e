// Operations on elements, in loops that the compiler turns into vector code.
#pragma once

#include <cmath>
#include <cstdint>

#include "functions.h"
#include "matgrad/operation_lines.h"  // which calls these functions
#include "vector.h"

namespace matgrad {
namespace {

// out_j = x_j^c for n floats, in double precision, a few at a time
template <int x_distance>
inline void power_row(float* out, const float* x, float c, Index n) {
    constexpr Index few = 64;
    const element::PowerOfFloat power(c);
    for (Index start = 0; start < n; start += few) {
        const Index count = std::min(few, n - start);
        double powers[few];
        for (Index j = 0; j < count; ++j) powers[j] = normal(x[x_distance * (start + j)]);
        for (Index j = 0; j < count; ++j) powers[j] = power(powers[j]);
        for (Index j = 0; j < count; ++j) out[start + j] = static_cast<float>(powers[j]);
    }
}

// out_j = f(x_j, y_j, c) for n elements; x or y repeats one element if its distance is 0. Out may be x or y.
template <class T, Op operation, int x_distance, int y_distance>
inline void row(T* out, const T* x, const T* y, T c, Index n) {
    constexpr int L = lanes<T>;
    if constexpr (is_arithmetic(operation))
        if (n >= L) {
            const auto vector = [&](Index j) {
                return value<T, operation>(x_distance ? load(x + j) : broadcast(*x), y_distance ? load(y + j) : broadcast(*y), c);
            };
            const Vector<T> last = vector(n - L);  // which may overlap the one before it
            for (Index j = 0; j + L < n; j += L) store(out + j, vector(j));
            store(out + n - L, last);
            return;
        }
    if constexpr (operation == Op::power && std::is_same_v<T, float>)
        if (std::isfinite(c)) return power_row<x_distance>(out, x, c, n);
#pragma GCC ivdep
    for (Index j = 0; j < n; ++j) out[j] = value<T, operation>(x[x_distance * j], y[y_distance * j], c);
}

template <class T, Op operation, int x_distance, int y_distance>
inline void rows(T* out, Index out_stride, View<const T> x, View<const T> y, T c) {
    for (Index i = 0; i < x.rows; ++i)
        row<T, operation, x_distance, y_distance>(out + i * out_stride, x.data + i * x.row_stride, y.data + i * y.row_stride, c,
                                                  x.columns);
}

template <class T, Op operation>
void elementwise(T* out, Index out_stride, View<const T> x, View<const T> y, T c) {
    constexpr ElementwiseKernel<T> by_distance[2][2] = {{rows<T, operation, 0, 0>, rows<T, operation, 0, 1>},
                                                        {rows<T, operation, 1, 0>, rows<T, operation, 1, 1>}};
    by_distance[x.column_stride][y.column_stride](out, out_stride, x, y, c);
}

// x^c, where square roots and squares are those of the processor
template <class T>
void powers(T* out, Index out_stride, View<const T> x, View<const T> y, T c) {
    if (c == T(0.5)) return elementwise<T, Op::sqrt>(out, out_stride, x, x, c);
    if (c == T(2)) return elementwise<T, Op::hadamard>(out, out_stride, x, x, c);
    if (c == T(0)) {
        for (Index i = 0; i < x.rows; ++i) std::fill_n(out + i * out_stride, x.columns, T(1));
        return;
    }
    elementwise<T, Op::power>(out, out_stride, x, y, c);
}

template <class T>
void uniform(T* out, Index out_stride, std::uint32_t key, std::uint32_t first, Index distance, Index rows, Index columns) {
    for (Index i = 0; i < rows; ++i, out += out_stride, first += static_cast<std::uint32_t>(distance))
        for (Index j = 0; j < columns; ++j) out[j] = hashed<T>(first + static_cast<std::uint32_t>(j), key);
}

}  // namespace
}  // namespace matgrad
