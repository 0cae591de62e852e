// The tasks of products of blocks, and with 0-1 matrices.
#include "operations.h"
#include "planner.h"

namespace matgrad {

namespace {

// The number that x is, if it is a whole one from 0 to n - 1; else n.
template <class T>
Index place_of(T x, Index n) {
    const bool is_inside = x >= T(0) && x < static_cast<T>(n);
    const Index k = is_inside ? static_cast<Index>(x) : n;
    return is_inside && static_cast<T>(k) == x ? k : n;
}

}  // namespace

// Diag(A, p) B, Diag(A, p)ᵀ B and diag(A B, p): a product for each block, of which every thread has some
template <class T>
void Planner<T>::plan_block_product(int i) {
    const Value& v = program_.values[i];
    const Op operation = v.operation;
    const Shape &a = program_.values[v.operands[0]].shape, &s = program_.values[v.operands[1]].shape;
    const Operand A = operand(v.operands[0]), B = operand(v.operands[1]);
    const bool is_transposed = operation == Op::block_transposed_product, is_diag = operation == Op::diag_product;
    const Index blocks = is_diag ? s[1] / v.shape[1] : is_transposed ? v.shape[0] / a[1] : s[0] / a[1];
    const Index m = v.shape[0] / blocks, n = v.shape[1], k = is_diag ? a[1] : s[0] / blocks;
    const Index scratch = calculator_.kernels.scratch_size(m, n, k, 1, Windowed::none);
    thread_scratch_size_ = std::max(thread_scratch_size_, 2 * kTile + scratch);
    const int out = v.buffer;
    add(i, blocks * m * n * k / 16, [=, &on = calculator_](const Worker& worker) {
        T numbers[2];
        const View<const T> whole_A = on.view(A, a[0], a[1], numbers[0]), whole_B = on.view(B, s[0], s[1], numbers[1]);
        const Worker alone{0, 1, nullptr};
        T* own = static_cast<T*>(on.thread_scratch[worker.index].get()) + 2 * kTile;
        const Index rows = a[0] / blocks, stride = on.layout.stride(out);
        for (Index block = worker.begin(blocks); block < worker.end(blocks); ++block) {
            View<const T> X = whole_A, Y = whole_B;
            X.data = &whole_A(block * rows, 0), X.rows = rows;
            Y.data = is_diag ? &whole_B(0, block * n) : &whole_B(block * k, 0), Y.rows = k, Y.columns = n;
            const View<T> C{on.data(out) + block * m * stride, m, n, stride, 1};
            on.kernels.product({is_transposed ? X.transposed() : X, Y, C, {nullptr, m, n, 0, 1}, T(1), T(0)}, {}, own, alone);
        }
    });
}

// E W takes rows of W, and Eᵀ G adds up rows of G: a thread has some rows of the result
template <class T>
void Planner<T>::plan_one_hot_product(int i) {
    const Value& v = program_.values[i];
    const bool is_transposed = v.operation == Op::one_hot_transposed_product;
    const Operand x = operand(v.operands[0]), B = operand(v.operands[1]);
    const Shape s = program_.values[v.operands[1]].shape;
    const int out = v.buffer;
    const Index rows = v.shape[0], columns = v.shape[1], labels = is_transposed ? s[0] : rows;
    add(i, labels * columns, [=, &on = calculator_](const Worker& worker) {
        T numbers[2];
        const View<const T> places = on.view(x, labels, 1, numbers[0]), W = on.view(B, s[0], s[1], numbers[1]);
        const Index from = worker.begin(rows), to = worker.end(rows), stride = on.layout.stride(out);
        T* C = on.data(out);
        if (is_transposed) {
            for (Index r = from; r < to; ++r) std::fill_n(C + r * stride, columns, T(0));
            for (Index k = 0; k < labels; ++k) {
                const Index r = place_of(places(k, 0), rows);
                if (r < from || r >= to) continue;
                for (Index j = 0; j < columns; ++j) C[r * stride + j] += W(k, j);
            }
            return;
        }
        for (Index r = from; r < to; ++r) {
            const Index place = place_of(places(r, 0), s[0]);
            for (Index j = 0; j < columns; ++j) C[r * stride + j] = place < s[0] ? W(place, j) : T(0);
        }
    });
}

// X Eᵀ and U E, where E is 1 on a support: each element is the sum of some of the same row
template <class T>
void Planner<T>::plan_selection(int i) {
    const Value& v = program_.values[i];
    const bool is_gather = v.operation == Op::gather;
    const Support& S = support(v.operands[0]);
    const Operand x = operand(v.operands[1]);
    const Shape s = program_.values[v.operands[1]].shape;
    const int out = v.buffer;
    const Index rows = v.shape[0], columns = v.shape[1];
    add(i, rows * std::max(columns, s[1]), [=, &on = calculator_, &S](const Worker& worker) {
        T number;
        const View<const T> X = on.view(x, s[0], s[1], number);
        const SparseIndex& E = is_gather ? S.by_rows : S.by_columns;
        for (Index r = worker.begin(rows); r < worker.end(rows); ++r) {
            T* row = on.data(out) + r * on.layout.stride(out);
            for (Index j = 0; j < columns; ++j) {
                const std::int64_t first = E.starts[j], last = E.starts[j + 1];
                T sum = first < last ? X(r, E.columns[first]) : T(0);
                for (std::int64_t p = first + 1; p < last; ++p) sum += X(r, E.columns[p]);
                row[j] = sum;
            }
        }
    });
}

template class Planner<float>;
template class Planner<double>;

}  // namespace matgrad
