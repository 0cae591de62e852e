// Functions of one element without a branch, so that the compiler turns loops over them into vector code. Their errors are
// about one unit in the last place.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "matgrad/kernels.h"

namespace matgrad {
namespace {
namespace element {

template <class T>
constexpr T infinity = std::numeric_limits<T>::infinity();

template <class T>
struct Format;
template <>
struct Format<float> {
    using Bits = std::uint32_t;
    static constexpr int mantissa = 23, bias = 127;
    static constexpr float shift = 12582912.0f;  // 1.5·2^23: adding it rounds to a whole number, which the last bits then hold
};
template <>
struct Format<double> {
    using Bits = std::uint64_t;
    static constexpr int mantissa = 52, bias = 1023;
    static constexpr double shift = 6755399441055744.0;
};

// c_0 + c_1·x + … + c_n·x^n
template <class T, std::size_t size>
inline T polynomial(T x, const T (&c)[size]) {
    T sum = c[size - 1];
#pragma GCC unroll 16
    for (int i = static_cast<int>(size) - 2; i >= 0; --i) sum = c[i] + x * sum;
    return sum;
}

// -- e^x ----------------------------------------------------------------------------------------------------------

// e^x = 2^n e^r with a small r: the constants of Cody and Waite, and a Taylor polynomial.
template <class T>
struct Exponential;
template <>
struct Exponential<float> {
    static constexpr int degree = 7;
    static constexpr float high = 0.693359375f, low = -2.12194440e-4f;
    static constexpr float smallest = -103.98f, largest = 88.73f;
};
template <>
struct Exponential<double> {
    static constexpr int degree = 13;
    static constexpr double high = 6.93145751953125e-1, low = 1.42860682030941723212e-6;
    static constexpr double smallest = -745.14, largest = 709.79;
};

// 1 / n! for n = 0, …, degree
template <class T>
struct Taylor {
    T c[Exponential<T>::degree + 1] = {1};

    constexpr Taylor() {
        for (int n = 1; n <= Exponential<T>::degree; ++n) c[n] = c[n - 1] / T(n);
    }
};
template <class T>
constexpr Taylor<T> taylor = {};

// 2^n for a whole number n in the range of the exponents of normal numbers
template <class T>
inline T power_of_two(T n) {
    using F = Format<T>;
    return __builtin_bit_cast(T, (__builtin_bit_cast(typename F::Bits, n + F::shift) + F::bias) << F::mantissa);
}

// e^x: inf above `largest`, 0 below `smallest`, nan for nan
template <class T>
inline T exp(T x) {
    using E = Exponential<T>;
    constexpr T shift = Format<T>::shift;
    const T clamped = x < E::smallest ? E::smallest : x > E::largest ? E::largest : x;
    const T n = (clamped * T(1.44269504088896340736) + shift) - shift;
    const T r = (clamped - n * E::high) - n * E::low;
    const T half = (n * T(0.5) + shift) - shift;  // in two steps: 2^n itself may not be a normal number
    const T result = polynomial(r, taylor<T>.c) * power_of_two(half) * power_of_two(n - half);
    return x > E::largest ? infinity<T> : x < E::smallest ? T(0) : x != x ? x : result;
}

// (e^2x - 1) / (e^2x + 1), and near 0, where that loses digits, x·P(x²)/Q(x²) (Cephes)
template <class T>
inline T tanh(T x) {
    const T z = x * x;
    const T P = (T(-9.64399179425052238628e-1) * z + T(-9.92877231001918586564e1)) * z + T(-1.61468768441708447952e3);
    const T Q = ((z + T(1.12811678491632931402e2)) * z + T(2.23548839060100448583e3)) * z + T(4.84406305325125486048e3);
    const T small = x * (1 + z * (P / Q));  // not x + x·z·(P / Q), which is 0 for -0
    const T e = exp(T(2) * (x < 0 ? -x : x));
    const T large = T(1) - T(2) / (e + T(1));
    return z < T(0.390625) ? small : x < 0 ? -large : x != x ? x : large;
}

// -- log x ----------------------------------------------------------------------------------------------------------

// log x = k·log 2 + log(1 + f) with 1 + f between √½ and √2, and log(1 + f) = f - f²/2 + s·(f²/2 + R(s²)) with s = f / (2 + f)
// (fdlibm).
template <class T>
struct Logarithm;
template <>
struct Logarithm<float> {
    static constexpr std::uint32_t smallest = 0x3f3504f3;  // the bits of √½
    static constexpr float high = 6.9313812256e-01f, low = 9.0580006145e-06f;
    static constexpr float R[] = {0.66666662693f, 0.40000972152f, 0.28498786688f, 0.24279078841f};
};
template <>
struct Logarithm<double> {
    static constexpr std::uint64_t smallest = 0x3fe6a09e667f3bcd;
    static constexpr double high = 6.93147180369123816490e-01, low = 1.90821492927058770002e-10;
    static constexpr double R[] = {6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01,
                                   2.222219843214978396e-01, 1.818357216161805012e-01, 1.531383769920937332e-01,
                                   1.479819860511658591e-01};
};

// log x: -inf for 0 and subnormal numbers, nan below 0
template <class T>
inline T log(T x) {
    using F = Format<T>;
    using L = Logarithm<T>;
    using Bits = typename F::Bits;
    constexpr Bits one = Bits(F::bias) << F::mantissa, whole = Bits(F::bias + F::mantissa) << F::mantissa;
    const Bits bits = __builtin_bit_cast(Bits, x) + (one - L::smallest);
    const T k = (__builtin_bit_cast(T, (bits >> F::mantissa) | whole) - T(Bits(1) << F::mantissa)) - T(F::bias);
    const T f = __builtin_bit_cast(T, (bits & ((Bits(1) << F::mantissa) - 1)) + L::smallest) - 1;
    const T s = f / (2 + f), z = s * s, half = T(0.5) * f * f;
    const T result = k * L::high - ((half - (s * (half + z * polynomial(z, L::R)) + k * L::low)) - f);
    if (x < 0) return std::numeric_limits<T>::quiet_NaN();
    return x < std::numeric_limits<T>::min() ? -infinity<T> : x == infinity<T> || x != x ? x : result;
}

// log(1 + x), with what 1 + x loses
template <class T>
inline T log1p(T x) {
    const T sum = 1 + x, lost = (x - (sum - 1)) / sum, plain = log(sum);
    return sum == 1 || x == infinity<T> ? x : x <= -1 ? plain : plain + lost;
}

// The powers x^c = ±e^(c·log |x|), which are precise if x was a float; c is finite and not 0.
struct PowerOfFloat {
    explicit PowerOfFloat(double c)
        : c(c), odd(std::fmod(c, 2) == 1 || std::fmod(c, 2) == -1),
          of_negative(std::floor(c) == c ? 1 : std::numeric_limits<double>::quiet_NaN()) {}

    double operator()(double x) const {
        const double sign = odd * std::copysign(1.0, x) + (1 - odd);
        return exp(c * log(std::fabs(x))) * sign * ((x < 0) & (x > -infinity<double>) ? of_negative : 1.0);
    }

    double c;
    double odd;          // 1 if c is an odd number, else 0
    double of_negative;  // 1 if c is a whole number, else nan
};

// -- erf x ----------------------------------------------------------------------------------------------------------

// erf x = x + x·N(x²) up to 1; above that, 1 - e^(-x²)·F(w) with w = (x - 2) / (x + 2). The polynomials interpolate at
// Chebyshev's points.
template <class T>
struct ErrorFunction;
template <>
struct ErrorFunction<float> {
    static constexpr float largest = 4;  // from there on it is 1
    static constexpr float N[] = {0.128379166f,   -0.376126267f,    0.112835947f,  -0.026854212f,
                                  0.00518908742f, -0.000801686429f, 7.87587506e-5f};
    static constexpr float F[] = {0.2553956763f,   -0.4271859898f,  0.2416582015f,    -0.07896830613f,
                                  0.003732371759f, 0.006811140131f, -0.0008379754387f};
};
template <>
struct ErrorFunction<double> {
    static constexpr double largest = 6;
    static constexpr double N[] = {0.128379167095512574,    -0.376126389031837481,     0.112837916709548787,
                                   -0.0268661706450767932,  0.00522397762481801447,    -0.000854832698083378991,
                                   0.000120553311116427109, -0.0000149255952668311816, 1.6461000484121368e-6,
                                   -1.6350312701054695e-7,  1.46597752740474358e-8,    -1.13728488567916737e-9,
                                   5.9571761477489114e-11};
    static constexpr double F[] = {0.255395676310505745,      -0.427185847413957885,    0.241658194242469857,
                                   -0.0789785810158525347,    0.00373289240349223978,   0.00699746174775357363,
                                   -0.000847143198076042359,  -0.000981977320813102272, 0.0000435542024527058955,
                                   0.000174366972329468635,   0.0000275431281856667173, -0.0000276473054436100538,
                                   -0.0000140675326945820577, 1.82014319597500905e-6,   3.91705929992538851e-6};
};

template <class T>
inline T erf(T x) {
    using E = ErrorFunction<T>;
    const T z = x * x, small = x + x * polynomial(z, E::N);
    const T size = std::fabs(x), t = size < E::largest ? size : E::largest;
    const T large = 1 - exp(-t * t) * polynomial((t - 2) / (t + 2), E::F);
    return size < 1 || x != x ? small : x < 0 ? -large : large;
}

// √x
template <class T>
inline T sqrt(T x) {
    return std::sqrt(x);
}

// x^c
template <class T>
inline T power(T x, T c) {
    return std::pow(normal(x), c);
}

// 1 where x ≥ 0, else 0: of an element or a vector; nan has 0
template <class T, class V>
inline V step(V x) {
    return x >= 0 ? T(1) - V{} : V{};
}

}  // namespace element
}  // namespace
}  // namespace matgrad
