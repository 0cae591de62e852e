// The table of matrix operations on Eigen, one line per operation, with the paper's names: the readable reference that the
// fast kernels are tested against. X.T, c * X, X + Y, X - Y and X * Z are Eigen's own.
#pragma once

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "matgrad/kernels.h"

namespace matgrad::table {

template <class T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// clang-format off
// -- the paper's table ----------------------------------------------------------------------------------------------------
template <class T> Matrix<T> zeros(Index m, Index n)                          { return Matrix<T>::Zero(m, n); }
template <class T> Matrix<T> ones(Index m, Index n)                           { return Matrix<T>::Ones(m, n); }
template <class T> Matrix<T> identity(Index n)                                { return Matrix<T>::Identity(n, n); }
template <class T> T dot(const Matrix<T>& x, const Matrix<T>& y)              { return (x.array() * y.array()).sum(); }
template <class T> Matrix<T> hadamard(const Matrix<T>& X, const Matrix<T>& Y) { return X.array() * Y.array(); }
template <class T> Matrix<T> diag(const Matrix<T>& X)                         { return X.diagonal(); }
template <class T> Matrix<T> Diag(const Matrix<T>& x)                         { return x.reshaped().asDiagonal(); }
template <class T> T elements_sum(const Matrix<T>& X)                         { return X.sum(); }
template <class T> Matrix<T> column_repeat(const Matrix<T>& x, Index n)       { return x.replicate(1, n); }
template <class T> Matrix<T> row_repeat(const Matrix<T>& x, Index m)          { return x.replicate(m, 1); }
template <class T> Matrix<T> columns_sum(const Matrix<T>& X)                  { return X.colwise().sum(); }
template <class T> Matrix<T> rows_sum(const Matrix<T>& X)                     { return X.rowwise().sum(); }
template <class T> Matrix<T> columns_max(const Matrix<T>& X)                  { return X.colwise().maxCoeff(); }
template <class T> Matrix<T> rows_max(const Matrix<T>& X)                     { return X.rowwise().maxCoeff(); }
template <class T> Matrix<T> columns_mean(const Matrix<T>& X)                 { return X.colwise().mean(); }
template <class T> Matrix<T> rows_mean(const Matrix<T>& X)                    { return X.rowwise().mean(); }
template <class T, class F> Matrix<T> apply(F f, const Matrix<T>& X)          { return X.unaryExpr(f); }
template <class T> Matrix<T> exp(const Matrix<T>& X)                          { return X.array().exp(); }
template <class T> Matrix<T> log(const Matrix<T>& X)                          { return X.array().log(); }
template <class T> Matrix<T> reciprocal(const Matrix<T>& X)                   { return X.array().inverse(); }
template <class T> Matrix<T> sqrt(const Matrix<T>& X)                         { return X.array().sqrt(); }
template <class T> Matrix<T> inv_sqrt(const Matrix<T>& X, T e)                { return (X.array() + e).sqrt().inverse(); }
template <class T> Matrix<T> log1p(const Matrix<T>& X)                        { return X.array().log1p(); }
// the paper's -log1p(exp(-X)) overflows for large negative elements
template <class T> Matrix<T> log_sigmoid(const Matrix<T>& X)                  { return X.array().min(T(0)) - (-X.array().abs()).exp().log1p(); }

// -- beyond the paper's table ---------------------------------------------------------------------------------------------
template <class T> Matrix<T> tanh(const Matrix<T>& X)                         { return X.array().tanh(); }
template <class T> Matrix<T> erf(const Matrix<T>& X)                          { return X.unaryExpr([](T x) { return std::erf(x); }); }
template <class T> Matrix<T> step(const Matrix<T>& X)                         { return (X.array() >= T(0)).template cast<T>(); }
template <class T> Matrix<T> power(const Matrix<T>& X, T c)                   { return X.array().pow(c); }
template <class T> Matrix<T> gate(const Matrix<T>& A, const Matrix<T>& Z)     { return hadamard<T>(A, step<T>(Z)); }
// clang-format on

// m×n numbers in [0, 1) from a hash of (seed, count, i, j)
template <class T>
Matrix<T> uniform(Index m, Index n, std::uint32_t seed, std::uint32_t count) {
    const std::uint32_t key = mix(mix(count) ^ seed);
    return Matrix<T>::NullaryExpr(m, n, [=](Index i, Index j) {
        return static_cast<T>(mix(mix(static_cast<std::uint32_t>(i * n + j)) ^ key) >> 8) / T(1 << 24);
    });
}

}  // namespace matgrad::table
