// The fast kernels against the table on Eigen, for every instruction set that the machine supports.
#include <cstring>
#include <limits>
#include <memory>

#include "matgrad/kernels.h"
#include "testing.h"

using namespace matgrad;
using namespace matgrad::testing;
using table::Matrix;

namespace {

template <class T>
constexpr T kTolerance = sizeof(T) == 4 ? T(2e-6) : T(4e-15);

template <class T>
View<const T> view(const Matrix<T>& X) {
    return {X.data(), X.rows(), X.cols(), X.cols(), 1};
}

template <class T>
void test_products(const std::string& set, std::mt19937& rng) {
    const auto& kernel = kernels<T>(set);
    for (int threads : {1, 2, 3}) {
        ThreadPool pool(threads);
        for (auto [m, n, k] : {std::array<Index, 3>{1, 1, 1},
                               {7, 5, 3},
                               {100, 10, 64},
                               {10, 64, 100},
                               {33, 50, 17},
                               {100, 97, 300},
                               {130, 49, 20},
                               {3, 200, 700},
                               {64, 2100, 40}})
            for (int flags = 0; flags < 16; ++flags) {
                const bool transpose_A = flags & 1, transpose_B = flags & 2, repeat = flags & 4;
                const T alpha = T(-0.3), beta = flags & 8 ? T(0.9) : T(0);
                const Matrix<T> A = random_matrix<T>(transpose_A ? k : m, transpose_A ? m : k, rng);
                const Matrix<T> B = random_matrix<T>(transpose_B ? n : k, transpose_B ? k : n, rng);
                const Matrix<T> b = random_matrix<T>(1, n, rng);
                Matrix<T> C = random_matrix<T>(m, n, rng), S = repeat ? table::row_repeat(b, m) : C;
                const Matrix<T> left = transpose_A ? Matrix<T>(A.transpose()) : A,
                                right = transpose_B ? Matrix<T>(B.transpose()) : B;
                Matrix<T> expected = alpha * (left * right), doubled(m, n);
                if (beta != 0) expected += beta * S;  // for β = 0 there is no S
                if (beta == 0) C.setConstant(std::numeric_limits<T>::quiet_NaN());
                const Product<T> P{transpose_A ? view(A).transposed() : view(A),
                                   transpose_B ? view(B).transposed() : view(B),
                                   {C.data(), m, n, n, 1},
                                   beta == 0 ? View<const T>{nullptr, m, n, 0, 1}
                                   : repeat  ? View<const T>{b.data(), m, n, 0, 1}
                                             : View<const T>{C.data(), m, n, n, 1},
                                   alpha,
                                   beta};
                std::vector<T> scratch(kernel.scratch_size(m, n, k, threads, Windowed::none) + 16);
                const Epilogue epilogue{[&](const Tile& t) {  // once per element, when it is complete
                                            doubled.block(t.row, t.column, t.rows, t.columns) =
                                                T(2) * C.block(t.row, t.column, t.rows, t.columns);
                                        },
                                        {}};
                pool.run([&](const Worker& worker) { kernel.product(P, epilogue, scratch.data(), worker); });
                const std::string what = set + " product " + std::to_string(m) + "×" + std::to_string(n) + "×" +
                                         std::to_string(k) + " flags " + std::to_string(flags);
                check_close<T>(C, expected, kTolerance<T> * 4, what);
                check_close<T>(doubled, T(2) * expected, kTolerance<T> * 4, what + ", epilogue");
            }
    }
}

// Windows of `size` elements of rows of D elements, some of which are 0: those of a row follow each other, or those of a column.
struct SomeWindows {
    SomeWindows(Index D, Index count, Index size, bool by_bands) : D(D) {
        for (Index p = 0; p < count; ++p) {
            starts.push_back(static_cast<std::int32_t>(runs.size()));
            for (Index j = 0; j < size; ++j) {
                const Index column = by_bands ? (3 * j + p) % (D + 1) - 1 : (5 * p + j) % (D + 1) - 1;
                columns.push_back(static_cast<std::int32_t>(column));
                const auto first = static_cast<std::int32_t>(j);
                Run* last = j ? &runs.back() : nullptr;
                if (last && (column < 0 ? last->column < 0 : last->column >= 0 && last->column + last->size == column))
                    ++last->size;
                else
                    runs.push_back({first, static_cast<std::int32_t>(column), 1});
            }
            const bool goes_on = p > 0 && by_bands && follow(p, size);
            if (!goes_on) bands.push_back({static_cast<std::int32_t>(p), 0});
            ++bands.back().size;
            band_of.push_back(static_cast<std::int32_t>(bands.size()) - 1);
        }
        starts.push_back(static_cast<std::int32_t>(runs.size()));
        windows = {runs.data(), starts.data(), count, size};
        if (by_bands) windows.columns = columns.data(), windows.bands = bands.data(), windows.band_of = band_of.data();
        windows.band_count = static_cast<Index>(bands.size());
    }

    bool follow(Index p, Index size) const {
        for (Index j = 0; j < size; ++j) {
            const std::int32_t before = columns[(p - 1) * size + j];
            if (columns[p * size + j] != (before < 0 ? -1 : before + 1)) return false;
        }
        return true;
    }

    template <class T>
    Matrix<T> one_hot() const {  // E
        Matrix<T> E = table::zeros<T>(static_cast<Index>(columns.size()), D);
        for (std::size_t i = 0; i < columns.size(); ++i)
            if (columns[i] >= 0) E(static_cast<Index>(i), columns[i]) = 1;
        return E;
    }

    Index D;
    std::vector<Run> runs;
    std::vector<std::int32_t> starts, columns, band_of;
    std::vector<Band> bands;
    Windows windows;
};

template <class T>
Matrix<T> stack(const Matrix<T>& X, Index P) {
    return Eigen::Map<const Matrix<T>>(X.data(), X.rows() * P, X.cols() / P);
}

template <class T>
void test_windows(const std::string& set, std::mt19937& rng) {
    const auto& kernel = kernels<T>(set);
    for (int threads : {1, 2, 3})
        for (auto [N, D, P, Q, K] :
             {std::array<Index, 5>{1, 1, 1, 1, 1}, {2, 40, 29, 25, 6}, {3, 200, 37, 64, 20}, {5, 90, 30, 700, 50}})
            for (int flags = 0; flags < 4; ++flags) {
                ThreadPool pool(threads);
                const bool has_sum = flags & 1, by_bands = flags & 2;
                const SomeWindows some(D, P, Q, by_bands);
                const Matrix<T> X = random_matrix<T>(N, D, rng), E = some.one_hot<T>(), U = stack<T>(X * E.transpose(), P),
                                W = random_matrix<T>(K, Q, rng), G = random_matrix<T>(N * P, K, rng), Wt = W.transpose();
                const std::string what = set + " windows " + std::to_string(Q) + " flags " + std::to_string(flags);
                const auto check_product = [&](Windowed windowed, const View<const T>& A, const View<const T>& B, Index m,
                                               Index n, Index k, Matrix<T> C, const Matrix<T>& AB) {
                    const T alpha = T(-0.3), beta = has_sum && windowed != Windowed::C ? T(0.9) : T(0);
                    Matrix<T> expected = alpha * AB, doubled(C.rows(), C.cols());
                    if (beta != 0) expected += beta * C;
                    std::vector<T> scratch(kernel.scratch_size(m, n, k, threads, windowed) + 16);
                    const Product<T> P{A,
                                       B,
                                       {C.data(), C.rows(), C.cols(), C.cols(), 1},
                                       {beta == 0 ? nullptr : C.data(), C.rows(), C.cols(), C.cols(), 1},
                                       alpha,
                                       beta,
                                       windowed,
                                       some.windows};
                    const Epilogue epilogue{[&](const Tile& t) {
                                                doubled.block(t.row, t.column, t.rows, t.columns) =
                                                    T(2) * C.block(t.row, t.column, t.rows, t.columns);
                                            },
                                            {}};
                    pool.run([&](const Worker& worker) { kernel.product(P, epilogue, scratch.data(), worker); });
                    const std::string which = what + " operand " + std::to_string(static_cast<int>(windowed));
                    check_close<T>(C, expected, kTolerance<T> * 8, which);
                    check_close<T>(doubled, T(2) * expected, kTolerance<T> * 8, which + ", epilogue");
                };
                check_product(Windowed::A, view(X), view(Wt), N * P, K, Q, random_matrix<T>(N * P, K, rng), U * Wt);
                check_product(Windowed::B, view(G).transposed(), view(X), K, Q, N * P, random_matrix<T>(K, Q, rng),
                              G.transpose() * U);
                const Matrix<T> GW = G * W;
                check_product(Windowed::C, view(G), view(W), N * P, Q, K, random_matrix<T>(N, D, rng),
                              Eigen::Map<const Matrix<T>>(GW.data(), N, P * Q) * E);
            }
}

// Maxima of 4 elements without zeros, and their gradients
template <class T>
void test_maxima(const std::string& set, std::mt19937& rng) {
    const auto& kernel = kernels<T>(set);
    for (Index P : {1, 7, 40}) {
        const SomeWindows some(200, P, 4, true);
        Windows windows = some.windows;
        std::vector<std::int32_t> columns = some.columns;
        for (std::int32_t& column : columns) ++column;
        windows.columns = columns.data();
        const Matrix<T> X = random_matrix<T>(1, 200, rng).array().round(), D = random_matrix<T>(P, 1, rng);
        Matrix<T> U(P, 4), Y(P, 1), DX = table::zeros<T>(1, 200), expected = DX;
        for (Index i = 0; i < U.size(); ++i) U.data()[i] = X(0, columns[static_cast<std::size_t>(i)]);
        kernel.windows_max(Y.data(), X.data(), windows);
        check_close<T>(Y, table::rows_max(U), 0, set + " windows_max");
        kernel.share(DX.data(), X.data(), Y.data(), D.data(), windows);
        const Matrix<T> M = table::step<T>(U - table::column_repeat(Y, 4));
        const Matrix<T> G =
            table::hadamard<T>(M, table::column_repeat<T>(table::hadamard<T>(D, table::reciprocal<T>(table::rows_sum(M))), 4));
        for (Index i = 0; i < G.size(); ++i) expected(0, columns[static_cast<std::size_t>(i)]) += G.data()[i];
        check_close<T>(DX, expected, kTolerance<T> * 4, set + " share");
    }
}

template <class T>
Matrix<T> reference(Op operation, const Matrix<T>& x, const Matrix<T>& y, T c) {
    switch (operation) {
        case Op::hadamard: return table::hadamard(x, y);
        case Op::gate: return table::gate(x, y);
        case Op::power: return table::power(x, c);
        case Op::exp: return table::exp(x);
        case Op::log: return table::log(x);
        case Op::log1p: return table::log1p(x);
        case Op::reciprocal: return table::reciprocal(x);
        case Op::sqrt: return table::sqrt(x);
        case Op::tanh: return table::tanh(x);
        case Op::erf: return table::erf(x);
        case Op::step: return table::step(x);
        default: break;
    }
    Matrix<T> out(x.rows(), x.cols());
    for (Index i = 0; i < x.size(); ++i) out.data()[i] = library_value(operation, x.data()[i], y.data()[i], c);
    return out;
}

template <class T>
void test_elementwise(const std::string& set, std::mt19937& rng) {
    const auto& kernel = kernels<T>(set);
    for (int k = 0; k < elementwise_count; ++k)
        for (auto [m, n] : {std::pair<Index, Index>{1, 1}, {3, 7}, {5, 64}, {100, 10}, {7, 100}}) {
            const auto operation = static_cast<Op>(k);
            const bool needs_positive =
                operation == Op::log || operation == Op::log1p || operation == Op::sqrt || operation == Op::power;
            Matrix<T> x = random_matrix<T>(m, n, rng), y = random_matrix<T>(m, n, rng), out(m, n);
            if (needs_positive) x = x.cwiseAbs();
            const std::string name = set + " elementwise " + std::to_string(k);
            const View<const T> X{x.data(), m, n, n, 1}, Y{y.data(), m, n, n, 1};
            kernel.elementwise[k](out.data(), n, X, Y, T(1.7));
            check_close<T>(out, reference<T>(operation, x, y, T(1.7)), kTolerance<T>, name);
            // in place, and with repeated elements
            Matrix<T> in_place = x;
            kernel.elementwise[k](in_place.data(), n, {in_place.data(), m, n, n, 1}, Y, T(1.7));
            check_close<T>(in_place, out, 0, name + " in place");
            const Matrix<T> x_column = x.col(0).replicate(1, n), y_column = y.col(0).replicate(1, n);
            kernel.elementwise[k](out.data(), n, X, {y.data(), m, n, n, 0}, T(1.7));
            check_close<T>(out, reference<T>(operation, x, y_column, T(1.7)), kTolerance<T>, name + " repeated y");
            kernel.elementwise[k](out.data(), n, {x.data(), m, n, n, 0}, Y, T(1.7));
            check_close<T>(out, reference<T>(operation, x_column, y, T(1.7)), kTolerance<T>, name + " repeated x");
            kernel.elementwise[k](out.data(), n, {x.data(), m, n, n, 0}, {y.data(), m, n, n, 0}, T(1.7));
            check_close<T>(out, reference<T>(operation, x_column, y_column, T(1.7)), kTolerance<T>, name + " repeated both");
        }
}

// Whether two numbers are equal, also as zeros with a sign and as no numbers
template <class T>
bool is_same(T a, T b, T tolerance) {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
    return a == b ? a != 0 || std::signbit(a) == std::signbit(b)
                  : std::fabs(a - b) <= tolerance * std::fabs(b) + std::numeric_limits<T>::min();
}

// Functions element by element, over their whole range and at its ends, against the C++ library in a higher precision
template <class T>
void test_functions(const std::string& set) {
    const auto& kernel = kernels<T>(set);
    const T inf = std::numeric_limits<T>::infinity();
    const T end = sizeof(T) == 4 ? T(87) : T(708);
    std::vector<T> x = {0,        T(-0.0),  inf,       -inf, 1000, -1000,
                        T(1e-20), T(0.625), T(-0.625), 1,    -1,   std::numeric_limits<T>::quiet_NaN()};
    for (int i = -2000; i <= 2000; ++i) x.push_back(end * i / 2000);
    for (int i = -2000; i <= 2000; ++i) x.push_back(T(i) / 1000);
    for (int i = -2000; i <= 2000; ++i) x.push_back(std::exp(end * i / 2000));
    for (int i = 1; i <= 2000; ++i) x.push_back(-std::exp(T(-i) / 50));
    std::vector<T> out(x.size());
    const Index n = static_cast<Index>(x.size());
    const auto test = [&](Op operation, T c, const std::string& name, auto&& reference) {
        kernel.elementwise[static_cast<int>(operation)](out.data(), n, {x.data(), 1, n, n, 1}, {x.data(), 1, n, n, 1}, c);
        const T tolerance = std::max(T(3), std::fabs(c) / 2) * std::numeric_limits<T>::epsilon();  // x^c by multiplications
        for (Index i = 0; i < n; ++i) {
            const T expected = static_cast<T>(reference(static_cast<long double>(x[i])));
            if (std::fabs(expected) < std::numeric_limits<T>::min() && expected != 0) continue;  // subnormal numbers are 0
            check(is_same(out[i], expected, tolerance), set + " " + name + "(" + std::to_string(x[i]) + ") is " +
                                                            std::to_string(out[i]) + ", expected " + std::to_string(expected));
        }
    };
    using Long = long double;
    test(Op::exp, 0, "exp", [](Long x) { return std::exp(x); });
    test(Op::log, 0, "log", [](Long x) { return std::log(x); });
    test(Op::log1p, 0, "log1p", [](Long x) { return std::log1p(x); });
    test(Op::tanh, 0, "tanh", [](Long x) { return std::tanh(x); });
    test(Op::erf, 0, "erf", [](Long x) { return std::erf(x); });
    for (const T c : {T(-3), T(-2), T(-1), T(-0.5), T(0), T(0.7), T(1), T(1.5), T(2), T(3), T(4), T(11)})
        test(Op::power, c, "power " + std::to_string(c), [&](Long x) { return std::pow(x, static_cast<Long>(c)); });
}

// Every operation on every pair of numbers that are easily got wrong, in vectors and one by one
template <class T>
void test_special_values(const std::string& set) {
    using Limits = std::numeric_limits<T>;
    const T inf = Limits::infinity(), most = Limits::max(), least = Limits::min();
    std::vector<T> v = {Limits::quiet_NaN(), 0, least, T(1e-3), T(0.5), 1, 3, 100, T(1e30), most, inf};
    for (std::size_t i = v.size(); i-- > 1;) v.push_back(-v[i]);
    const Index n = static_cast<Index>(v.size());
    Matrix<T> x(n, n), y(n, n);
    for (Index i = 0; i < n; ++i)
        for (Index j = 0; j < n; ++j) x(i, j) = v[i], y(i, j) = v[j];
    for (int k = 0; k < elementwise_count; ++k) {
        const auto operation = static_cast<Op>(k);
        for (T c : {T(-0.5), T(0), T(0.5), inf, v[0]})  // exact factors: a product that is rounded first may overflow
            for (Index width : {n, Index(1)}) {
                const Matrix<T> X = x.leftCols(width), Y = y.rightCols(width);
                Matrix<T> out(n, width);
                kernels<T>(set).elementwise[k](out.data(), width, {X.data(), n, width, width, 1}, {Y.data(), n, width, width, 1},
                                               c);
                for (Index i = 0; i < n; ++i)
                    for (Index j = 0; j < width; ++j) {
                        const T x = X(i, j), y = Y(i, j);
                        const T expected = operation == Op::add_scaled ? std::fma(c, y, x) : library_value(operation, x, y, c);
                        const std::string what =
                            "(" + std::to_string(X(i, j)) + ", " + std::to_string(Y(i, j)) + ", " + std::to_string(c);
                        check(is_same(out(i, j), expected, kTolerance<T>), set + " elementwise " + std::to_string(k) + what +
                                                                               "): " + std::to_string(out(i, j)) + ", expected " +
                                                                               std::to_string(expected));
                    }
            }
    }
}

// The sums of a million equal numbers, and a nan that a factor of 0 must not hide
template <class T>
void test_long_sums(const std::string& set) {
    const auto& kernel = kernels<T>(set);
    const Index n = 1000000;
    const std::vector<T> x(n, T(0.1));
    T total = 0, nan = std::numeric_limits<T>::quiet_NaN();
    const auto check_sum = [&](const char* what) {
        check(std::fabs(total / (n * static_cast<double>(T(0.1))) - 1) < 4 * kTolerance<T>, set + " " + what);
    };
    kernel.columns_sum(&total, {x.data(), n, 1, 1, 1}, 0, 1);
    check_sum("long columns_sum");
    kernel.rows_sum(&total, 1, {x.data(), 1, n, n, 1}, 0, 1);
    check_sum("long rows_sum");
    kernel.rows_sum(&total, 1, {x.data(), 1, n / 2, n, 2}, 0, 1);
    total *= 2;
    check_sum("long rows_sum of distant elements");
    const T one = 1;
    std::vector<T> scratch(kernel.scratch_size(1, 1, 1, 1, Windowed::none) + 16);
    kernel.product({{&one, 1, 1, 1, 1}, {&one, 1, 1, 1, 1}, {&total, 1, 1, 1, 1}, {&nan, 1, 1, 1, 1}, one, T(0)}, {},
                   scratch.data(), Worker{0, 1, nullptr});
    check(std::isnan(total), set + ": 0·nan + 1·1");
}

template <class T>
void test_reductions(const std::string& set, std::mt19937& rng) {
    const auto& kernel = kernels<T>(set);
    for (auto [m, n] : {std::pair<Index, Index>{1, 1}, {1, 9}, {9, 1}, {33, 70}, {100, 10}}) {
        const Matrix<T> X = random_matrix<T>(m, n, rng), Xt = X.transpose();
        for (const View<const T>& V : {view(X), view(Xt).transposed()}) {
            Matrix<T> row(1, n), column(m, 1);
            kernel.columns_sum(row.data(), V, 0, n);
            check_close<T>(row, table::columns_sum(X), kTolerance<T> * 8, set + " columns_sum");
            kernel.columns_max(row.data(), V, 0, n);
            check_close<T>(row, table::columns_max(X), 0, set + " columns_max");
            kernel.rows_sum(column.data(), 1, V, 0, m);
            check_close<T>(column, table::rows_sum(X), kTolerance<T> * 8, set + " rows_sum");
            kernel.rows_max(column.data(), 1, V, 0, m);
            check_close<T>(column, table::rows_max(X), 0, set + " rows_max");
        }
    }
    Matrix<T> U(37, 53);
    kernel.uniform(U.data(), 53, mix(mix(5u) ^ 123u), 0, 53, 37, 53);
    check_close<T>(U, table::uniform<T>(37, 53, 123, 5), 0, set + " uniform");
}

template <class T>
void test_transpose(const std::string& set, std::mt19937& rng) {
    for (auto [m, n] : {std::pair<Index, Index>{1, 1}, {1, 40}, {40, 1}, {33, 70}, {100, 17}}) {
        const Matrix<T> X = random_matrix<T>(m, n, rng), expected = X.transpose();
        Matrix<T> out(n, m);
        kernels<T>(set).transpose(out.data(), m, view(X), nullptr, 0, n);
        check_close<T>(out, expected, 0, set + " transpose");
        std::vector<Index> rows;
        for (Index i = 0; i < m; ++i) rows.push_back(i * 7 % m);
        kernels<T>(set).transpose(out.data(), m, view(X), rows.data(), 0, n);
        for (Index i = 0; i < m; ++i) check(out.col(i) == expected.col(rows[i]), set + " transpose of chosen rows");
    }
}

template <class T>
void test_sparse(const std::string& set, std::mt19937& rng) {
    const auto& kernel = kernels<T>(set);
    for (auto [K, D, density] :
         {std::tuple<Index, Index, double>{1, 1, 1.0}, {7, 11, 0.3}, {40, 60, 0.05}, {20, 30, 0.0}, {16, 8, 1.0}})
        for (Index N : {1, 3, 16, 17, 64, 100, 130, 300}) {
            std::vector<std::int64_t> starts = {0}, column_starts(D + 1, 0);
            std::vector<std::int32_t> columns, rows, positions;
            Matrix<T> W = Matrix<T>::Zero(K, D);
            std::vector<T> values;
            std::bernoulli_distribution stored(density);
            for (Index i = 0; i < K; ++i) {
                for (Index j = 0; j < D; ++j)
                    if (stored(rng)) {
                        columns.push_back(static_cast<std::int32_t>(j));
                        values.push_back(W(i, j) = std::normal_distribution<T>()(rng));
                    }
                starts.push_back(static_cast<std::int64_t>(columns.size()));
            }
            for (Index j = 0; j < D; ++j) {
                for (Index i = 0; i < K; ++i)
                    for (std::int64_t p = starts[i]; p < starts[i + 1]; ++p)
                        if (columns[p] == j) {
                            rows.push_back(static_cast<std::int32_t>(i));
                            positions.push_back(static_cast<std::int32_t>(p));
                        }
                column_starts[j + 1] = static_cast<std::int64_t>(rows.size());
            }
            const SparseIndex by_rows{starts.data(), columns.data(), nullptr, K};
            const SparseIndex by_columns{column_starts.data(), rows.data(), positions.data(), D};
            const Index stride = padded<T>(N);
            Matrix<T> X = Matrix<T>::Zero(D, stride), Z = Matrix<T>::Zero(K, stride);
            X.leftCols(N) = random_matrix<T>(D, N, rng);
            Z.leftCols(N) = random_matrix<T>(K, N, rng);
            Matrix<T> Y = Matrix<T>::Zero(K, stride), DX = Matrix<T>::Zero(D, stride);
            std::vector<T> DW(values.size(), T(7)), C(values.size(), T(2));
            const Matrix<T> narrow = Z.leftCols(N), before = random_matrix<T>(D, N, rng);
            Matrix<T> sum = before, product = Matrix<T>::Constant(D, N, T(7));
            for (int threads : {1, 3}) {
                ThreadPool pool(threads);
                pool.run([&](const Worker& worker) {
                    kernel.sparse_product({Y.data(), stride}, by_rows, values.data(), {X.data(), stride}, N,
                                          by_rows.begin(worker), by_rows.end(worker));
                    kernel.sparse_product({DX.data(), stride}, by_columns, values.data(), {Z.data(), stride}, N,
                                          by_columns.begin(worker), by_columns.end(worker));
                    const View<const T> none{}, B{narrow.data(), K, N, N, 1}, start{sum.data(), D, N, N, 1};
                    const Index from = by_columns.begin(worker, true), to = by_columns.end(worker, true);
                    kernel.sparse_sum({by_columns, values.data(), B, none, {product.data(), D, N, N, 1}, T(1), T(0)}, from, to);
                    kernel.sparse_sum({by_columns, values.data(), B, start, {sum.data(), D, N, N, 1}, T(-2), T(1)}, from, to);
                    const Index first = worker.begin(values.size()), last = worker.end(values.size());
                    kernel.sampled_product(DW.data() + first, T(0.5), C.data() + first, T(-2),
                                           {by_rows, {Z.data(), stride}, {X.data(), stride}}, N, first, last);
                });
                const std::string what =
                    set + " sparse " + std::to_string(K) + "×" + std::to_string(D) + " N " + std::to_string(N);
                check_close<T>(Y, W * X, kTolerance<T> * 8, what + " W X");
                check_close<T>(DX, W.transpose() * Z, kTolerance<T> * 8, what + " Wᵀ Z");
                check_close<T>(product, W.transpose() * narrow, kTolerance<T> * 8, what + " Wᵀ Z, not padded");
                check_close<T>(sum, before - T(2) * W.transpose() * narrow, kTolerance<T> * 8, what + " C - 2 Wᵀ Z");
                sum = before;
                const Matrix<T> full = Z * X.transpose();
                for (Index i = 0; i < K; ++i)
                    for (std::int64_t p = starts[i]; p < starts[i + 1]; ++p)
                        check(std::fabs(DW[p] - (1 - 2 * full(i, columns[p]))) <= kTolerance<T> * 50 * std::sqrt(T(N)),
                              what + " sampled");
            }
        }
}

template <class T>
void test_all(const std::string& set) {
    std::mt19937 rng(1);
    test_products<T>(set, rng);
    test_windows<T>(set, rng);
    test_maxima<T>(set, rng);
    test_elementwise<T>(set, rng);
    test_functions<T>(set);
    test_special_values<T>(set);
    test_reductions<T>(set, rng);
    test_long_sums<T>(set);
    test_transpose<T>(set, rng);
    test_sparse<T>(set, rng);
}

}  // namespace

int main() {
    for (const std::string& set : instruction_sets()) {
        std::printf("%s\n", set.c_str());
        test_all<float>(set);
        test_all<double>(set);
    }
    check_throws([] { kernels<float>("mmx"); }, "an unknown instruction set");
    check_throws([] { ThreadPool pool(0); }, "no threads");
    return finish("kernels");
}
