// Operations on elements, in loops that the compiler turns into vector code.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "vector.h"

namespace matgrad {
namespace {

// e^x = 2^n e^r with a small r: the constants of Cody and Waite, and a Taylor polynomial.
template <class T>
struct Exponential;
template <>
struct Exponential<float> {
    using Bits = std::int32_t;
    static constexpr int mantissa = 23, bias = 127, degree = 7;
    static constexpr float shift = 12582912.0f;  // 1.5·2^23: adding it rounds to a whole number
    static constexpr float high = 0.693359375f, low = -2.12194440e-4f;
    static constexpr float smallest = -103.98f, largest = 88.73f;
};
template <>
struct Exponential<double> {
    using Bits = std::int64_t;
    static constexpr int mantissa = 52, bias = 1023, degree = 13;
    static constexpr double shift = 6755399441055744.0;
    static constexpr double high = 6.93145751953125e-1, low = 1.42860682030941723212e-6;
    static constexpr double smallest = -745.14, largest = 709.79;
};

// 2^n for a whole number n in the range of the exponents of normal numbers
template <class T>
inline T power_of_two(T n) {
    using E = Exponential<T>;
    const auto bits = static_cast<typename E::Bits>(n) + E::bias;
    return __builtin_bit_cast(T, bits << E::mantissa);
}

// e^x without a branch: inf above `largest`, 0 below `smallest`, nan for nan
template <class T>
inline T exponential(T x) {
    using E = Exponential<T>;
    const T clamped = x < E::smallest ? E::smallest : x > E::largest ? E::largest : x;
    const T n = (clamped * T(1.44269504088896340736) + E::shift) - E::shift;
    const T r = (clamped - n * E::high) - n * E::low;
    T sum = 1;
#pragma GCC unroll 16
    for (int i = E::degree; i >= 1; --i) sum = 1 + r * sum / T(i);
    const T half = (n * T(0.5) + E::shift) - E::shift;  // in two steps: 2^n itself may not be a normal number
    const T result = sum * power_of_two(half) * power_of_two(n - half);
    return x > E::largest ? std::numeric_limits<T>::infinity() : x < E::smallest ? T(0) : x != x ? x : result;
}

// (e^2x - 1) / (e^2x + 1), and near 0, where that loses digits, x·P(x²)/Q(x²) (Cephes)
template <class T>
inline T hyperbolic_tangent(T x) {
    const T z = x * x;
    const T P = (T(-9.64399179425052238628e-1) * z + T(-9.92877231001918586564e1)) * z + T(-1.61468768441708447952e3);
    const T Q = ((z + T(1.12811678491632931402e2)) * z + T(2.23548839060100448583e3)) * z + T(4.84406305325125486048e3);
    const T small = x * (1 + z * (P / Q));  // not x + x·z·(P / Q), which is 0 for -0
    const T e = exponential(T(2) * (x < 0 ? -x : x));
    const T large = T(1) - T(2) / (e + T(1));
    return z < T(0.390625) ? small : x < 0 ? -large : x != x ? x : large;
}

// f(x, y, c) for every operation: of elements or, if it is arithmetic, of vectors
template <class T, Elementwise operation, class V>
inline V value(V x, V y, T c) {
    if constexpr (operation == Elementwise::add) return x + y;
    if constexpr (operation == Elementwise::subtract) return x - y;
    if constexpr (operation == Elementwise::hadamard) return x * y;
    if constexpr (operation == Elementwise::add_scaled) return x + c * y;
    if constexpr (operation == Elementwise::gate) return x * value<T, Elementwise::step>(y, y, c);  // a nan stays
    if constexpr (operation == Elementwise::scale) return c * x;
    if constexpr (operation == Elementwise::divide) return x / c;
    if constexpr (operation == Elementwise::negative) return -x;
    if constexpr (operation == Elementwise::copy) return x;
    if constexpr (operation == Elementwise::reciprocal) return T(1) / x;
    if constexpr (operation == Elementwise::step) return x >= 0 ? T(1) - V{} : V{};
    if constexpr (operation == Elementwise::power) return c == T(0.5) ? std::sqrt(x) : std::pow(normal(x), c);  // as NumPy
    if constexpr (operation == Elementwise::exp) return exponential(x);
    if constexpr (operation == Elementwise::log) return std::log(normal(x));
    if constexpr (operation == Elementwise::log1p) return std::log1p(x);
    if constexpr (operation == Elementwise::sqrt) return std::sqrt(x);
    if constexpr (operation == Elementwise::tanh) return hyperbolic_tangent(x);
    if constexpr (operation == Elementwise::erf) return std::erf(x);
}

constexpr bool is_arithmetic(Elementwise operation) { return operation <= Elementwise::step; }

// out_j = f(x_j, y_j, c) for n elements; x or y repeats one element if its distance is 0. Out may be x or y.
template <class T, Elementwise operation, int x_distance, int y_distance>
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
#pragma GCC ivdep
    for (Index j = 0; j < n; ++j) out[j] = value<T, operation>(x[x_distance * j], y[y_distance * j], c);
}

template <class T, Elementwise operation, int x_distance, int y_distance>
inline void rows(T* out, Index out_stride, View<const T> x, View<const T> y, T c) {
    for (Index i = 0; i < x.rows; ++i)
        row<T, operation, x_distance, y_distance>(out + i * out_stride, x.data + i * x.row_stride, y.data + i * y.row_stride, c,
                                                  x.columns);
}

template <class T, Elementwise operation>
void elementwise(T* out, Index out_stride, View<const T> x, View<const T> y, T c) {
    constexpr ElementwiseKernel<T> by_distance[2][2] = {{rows<T, operation, 0, 0>, rows<T, operation, 0, 1>},
                                                        {rows<T, operation, 1, 0>, rows<T, operation, 1, 1>}};
    by_distance[x.column_stride][y.column_stride](out, out_stride, x, y, c);
}

template <class T>
void uniform(T* out, Index out_stride, std::uint32_t key, std::uint32_t first, Index distance, Index rows, Index columns) {
    for (Index i = 0; i < rows; ++i, out += out_stride, first += static_cast<std::uint32_t>(distance))
        for (Index j = 0; j < columns; ++j)
            out[j] = hashed<T>(first + static_cast<std::uint32_t>(j), key);
}

}  // namespace
}  // namespace matgrad
