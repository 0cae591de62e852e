// What the tests share: checks that count failures, and random matrices.
#pragma once

#include <cmath>
#include <cstdio>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>

#include "matgrad/table.h"

namespace matgrad::testing {

inline int failures = 0;

inline void check(bool holds, const std::string& what) {
    if (holds) return;
    ++failures;
    std::fprintf(stderr, "FAILED: %s\n", what.c_str());
}

// Checks that a call throws std::invalid_argument with a message.
inline void check_throws(const std::function<void()>& call, const std::string& what) {
    try {
        call();
    } catch (const std::invalid_argument& error) {
        return check(error.what()[0] != 0, what + ": the error has no message");
    }
    check(false, what + ": no error");
}

template <class T>
table::Matrix<T> random_matrix(Index m, Index n, std::mt19937& rng) {
    std::normal_distribution<T> normal;
    return table::Matrix<T>::NullaryExpr(m, n, [&] { return normal(rng); });
}

// Compares relative to the largest element.
template <class T>
void check_close(const table::Matrix<T>& actual, const table::Matrix<T>& expected, T tolerance, const std::string& what) {
    const T scale = std::max(T(1e-30), expected.size() ? expected.cwiseAbs().maxCoeff() : T(1));
    const T error = expected.size() ? (actual - expected).cwiseAbs().maxCoeff() / scale : T(0);
    check(error <= tolerance, what + ": error " + std::to_string(error));
}

inline int finish(const char* name) {
    std::printf("%s: %s\n", name, failures ? "FAILED" : "ok");
    return failures ? 1 : 0;
}

}  // namespace matgrad::testing
