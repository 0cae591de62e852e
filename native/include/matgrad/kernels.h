// The fast kernels: written once, compiled for several instruction sets, chosen at run time.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "matgrad/operation_list.h"
#include "matgrad/thread_pool.h"

namespace matgrad {

using Index = std::ptrdiff_t;

// A matrix in memory that it does not own: element (i, j) is data[i * row_stride + j * column_stride].
template <class T>
struct View {
    T* data;
    Index rows, columns, row_stride, column_stride;

    View transposed() const { return {data, columns, rows, column_stride, row_stride}; }
    T& operator()(Index i, Index j) const { return data[i * row_stride + j * column_stride]; }
};

// A part of a matrix that is processed at once.
struct Tile {
    Index row, column, rows, columns;
};

// out = f(x, y, c) on matrices of the same size. Rows of out are contiguous; rows of x and y are contiguous or repeat one
// element.
template <class T>
using ElementwiseKernel = void (*)(T* out, Index out_stride, View<const T> x, View<const T> y, T c);

// `run` is called for each tile of a product when it is complete, `fetch` before that, to bring what `run` reads and
// writes into the cache. Both may be empty.
struct Epilogue {
    std::function<void(const Tile&)> run, fetch;
};

// The elements first, …, first + size - 1 of a window: those of a row of X from `column` on, or 0 if that is -1.
struct Run {
    std::int32_t first, column, size;
};

// The windows first, …, first + size - 1, of which each element is that after the one of the window before, or all are 0.
struct Band {
    std::int32_t first, size;
};

// The rows of stack(X Eᵀ, P): row n·P + p, for n below N, is made of the runs starts[p], …, starts[p + 1] - 1 of row n of X. Where
// runs are short, there may be bands of windows: element j of window p is that in columns[p * size + j] of row n, or 0 if that is -1.
struct Windows {
    const Run* runs = nullptr;
    const std::int32_t* starts = nullptr;
    Index count = 0, size = 0;  // P and Q
    const std::int32_t* columns = nullptr;
    const Band* bands = nullptr;
    Index band_count = 0;
    const std::int32_t* band_of = nullptr;  // each window
};

// Which matrix of a product has windows: it is stack(X Eᵀ, P), and the product has X in its place; C is then unstack(A B, P) E.
enum class Windowed { none, A, B, C };

// C = β·S + α·A B, where S has the size of C. S may be C itself, or repeat one row. Without data it is left out, which β = 0 does
// not do: 0·nan is nan.
template <class T>
struct Product {
    View<const T> A, B;
    View<T> C;
    View<const T> S;
    T alpha, beta;
    Windowed windowed = Windowed::none;
    Windows windows = {};
};

// Where the stored elements of a sparse matrix are: those of row i are the elements starts[i], …, starts[i + 1] - 1, and
// columns[p] is the column of element p. Its value is values[p] or, if there are positions, values[positions[p]].
struct SparseIndex {
    const std::int64_t* starts;
    const std::int32_t* columns;
    const std::int32_t* positions;
    Index rows;

    // The rows of a worker; all workers get about the same number of elements or, if rows count too, of rows and elements.
    Index begin(const Worker& worker, bool rows_count = false) const;
    Index end(const Worker& worker, bool rows_count = false) const;
};

// out = β·C + α·A B for a sparse A. The rows of the other matrices are contiguous; they need not be padded. Without data, C is
// left out, as S in a `Product`.
template <class T>
struct SparseSum {
    SparseIndex A;
    const T* values;
    View<const T> B, C;
    View<T> out;
    T alpha, beta;
};

// A matrix with padded rows that are `stride` elements apart.
template <class T>
struct Padded {
    T* data;
    Index stride;

    operator Padded<const T>() const
        requires(!std::is_const_v<T>)
    {
        return {data, stride};
    }
};

// A Bᵀ at the stored elements of W.
template <class T>
struct Sample {
    SparseIndex W;
    Padded<const T> A, B;
};

// The number of elements that a padded row of n elements takes: whole vectors of every instruction set.
template <class T>
constexpr Index padded(Index n) {
    constexpr Index line = 64 / sizeof(T);
    return (n + line - 1) / line * line;
}

template <class T>
struct Kernels {
    Index lanes;  // elements per vector
    ElementwiseKernel<T> elementwise[elementwise_count];
    // The worker's part of the product A B of m×n elements; `scratch` has scratch_size(...) elements and is shared by all workers.
    void (*product)(const Product<T>&, const Epilogue&, T* scratch, const Worker&);
    Index (*scratch_size)(Index m, Index n, Index k, int threads, Windowed windowed);
    // out = Xᵀ for the columns [first, last) of X, whose rows are contiguous; the rows of out are out_stride apart. If there are
    // `rows`, row i of X is the one with the index rows[i].
    void (*transpose)(T* out, Index out_stride, View<const T> X, const Index* rows, Index first, Index last);
    // The rows [first, last) of W B for a sparse W. B and the result have n columns, followed by zeros up to whole vectors.
    void (*sparse_product)(Padded<T> out, const SparseIndex& W, const T* values, Padded<const T> B, Index n, Index first,
                           Index last);
    // out = β·C + α·(A Bᵀ at the stored elements [first, last) of W); A and B have n columns, padded as B above. C may be
    // left out, as S in a `Product`.
    void (*sampled_product)(T* out, T beta, const T* C, T alpha, const Sample<T>&, Index n, Index first, Index last);
    // The rows [first, last) of a sum. Those without elements stay as they are if out is C and β is 1.
    void (*sparse_sum)(const SparseSum<T>&, Index first, Index last);
    // Numbers in [0, 1) from a hash of a key and a position; the first position is `first`, and the positions of two
    // rows are `distance` apart.
    void (*uniform)(T* out, Index out_stride, std::uint32_t key, std::uint32_t first, Index distance, Index rows, Index columns);
    // Sums and maxima of the columns or rows [first, last).
    void (*columns_sum)(T* out, View<const T> X, Index first, Index last);
    void (*columns_max)(T* out, View<const T> X, Index first, Index last);
    void (*rows_sum)(T* out, Index out_stride, View<const T> X, Index first, Index last);
    void (*rows_max)(T* out, Index out_stride, View<const T> X, Index first, Index last);
    // y = x Eᵀ, and y = x E, for rows x and y that are one window, and y of n elements.
    void (*gather)(T* y, const T* x, Index n, const Windows&);
    void (*scatter)(T* y, const T* x, Index n, const Windows&);
    // y_p = the greatest element of window p of a row x; nan if there is one
    void (*windows_max)(T* y, const T* x, const Windows&);
    // Adds h_p to dx at each element of window p where x_j - y_p ≥ 0, with h_p = d_p / the number of these.
    void (*share)(T* dx, const T* x, const T* y, const T* d, const Windows&);
};

// A permutation of the 32-bit integers that scatters them (Wellons' lowbias32).
inline std::uint32_t mix(std::uint32_t x) {
    x ^= x >> 16;
    x *= 0x7FEB352Du;
    x ^= x >> 15;
    x *= 0x846CA68Bu;
    return x ^ x >> 16;
}

// A number in [0, 1) from a hash of a position and a key.
template <class T>
inline T hashed(std::uint32_t position, std::uint32_t key) {
    return static_cast<T>(mix(mix(position) ^ key) >> 8) / T(1 << 24);
}

// x, with 0 for a subnormal number: arithmetic sees 0, but some functions of the C++ library look at the bits.
template <class T>
static inline T normal(T x) {
    return std::fabs(x) < std::numeric_limits<T>::min() ? x * T(0) : x;
}

// The names of the instruction sets that this machine supports, slowest first.
std::vector<std::string> instruction_sets();

// The kernels for an instruction set; for the fastest one if the name is empty.
template <class T>
const Kernels<T>& kernels(const std::string& instruction_set = "");

}  // namespace matgrad
