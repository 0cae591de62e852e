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
    const Windows* W = storage_.windows(program_.values[v.operands[0]].name, 0);  // a whole row is one
    add(i, rows * std::max(columns, s[1]), [=, &on = calculator_, &S](const Worker& worker) {
        T number;
        const View<const T> X = on.view(x, s[0], s[1], number);
        const SparseIndex& E = is_gather ? S.by_rows : S.by_columns;
        for (Index r = worker.begin(rows); r < worker.end(rows); ++r) {
            T* row = on.data(out) + r * on.layout.stride(out);
            if (W->runs && X.column_stride == 1) {
                (is_gather ? on.kernels.gather : on.kernels.scatter)(row, &X(r, 0), columns, *W);
                continue;
            }
            for (Index j = 0; j < columns; ++j) {
                const std::int64_t first = E.starts[j], last = E.starts[j + 1];
                T sum = first < last ? X(r, E.columns[first]) : T(0);
                for (std::int64_t p = first + 1; p < last; ++p) sum += X(r, E.columns[p]);
                row[j] = sum;
            }
        }
    });
}

// The greatest elements of windows, a row of X at a time
template <class T>
void Planner<T>::plan_windows_max(int i) {
    const Value& v = program_.values[i];
    const Value& S = program_.values[v.operands[0]];
    const Operand x = operand(v.operands[0]);
    const Windows* W = windows_with_bands(v.operands[0]);
    const int out = v.buffer;
    const Index rows = program_.values[S.operands[0]].shape[0];
    add(i, S.shape[0] * S.shape[1], [=, &on = calculator_](const Worker& worker) {
        for (Index r = worker.begin(rows); r < worker.end(rows); ++r)
            on.kernels.windows_max(on.data(out) + r * W->count, on.data(x.buffer) + r * x.row_stride, *W);
    });
}

// unstack((h 1ᵀ) ⊙ [R ≥ 0], P) E with R = S - y 1ᵀ, h = d ⊙ 1/([R ≥ 0] 1) and S = stack(X Eᵀ, P), where all but the result is
// deferred: each d goes to the greatest elements of a window, in equal shares
template <class T>
bool Planner<T>::plan_shared(int i) {
    const Value& v = program_.values[i];
    if (!reads_deferred(v.operands[1])) return false;
    const int G = operand_of(v.operands[1], Op::unstack, 0), R = operand_of(G, Op::gate, 1),
              h = operand_of(operand_of(G, Op::gate, 0), Op::column_repeat, 0), S = operand_of(R, Op::subtract, 0),
              y = operand_of(operand_of(R, Op::subtract, 1), Op::column_repeat, 0);
    const bool is_first = program_.values[operand_of(h, Op::hadamard, 0)].operation == Op::reciprocal;
    const int d = operand_of(h, Op::hadamard, is_first ? 1 : 0),
              M = operand_of(operand_of(operand_of(h, Op::hadamard, is_first ? 0 : 1), Op::reciprocal, 0), Op::rows_sum, 0);
    const int E = operand_of(operand_of(S, Op::stack, 0), Op::gather, 0);
    const Operand x = operand(S), Y = operand(y), D = operand(d);
    const bool are_columns = Y.buffer >= 0 && Y.row_stride == 1 && D.buffer >= 0 && D.row_stride == 1;
    if (operand_of(M, Op::step, 0) != R || program_.values[E].name != program_.values[v.operands[0]].name || !x.windows ||
        !are_columns || reads_deferred(y) || reads_deferred(d))
        refuse_deferred(i);
    const Windows* W = windows_with_bands(S);
    const int out = v.buffer;
    const Index rows = v.shape[0], columns = v.shape[1];
    add(i, program_.values[S].shape[0] * program_.values[S].shape[1], [=, &on = calculator_](const Worker& worker) {
        for (Index r = worker.begin(rows); r < worker.end(rows); ++r) {
            T* row = on.data(out) + r * on.layout.stride(out);
            std::fill_n(row, columns, T(0));
            on.kernels.share(row, on.data(x.buffer) + r * x.row_stride, on.data(Y.buffer) + r * W->count,
                             on.data(D.buffer) + r * W->count, *W);
        }
    });
    return true;
}

// An operand of a value, which has this operation if the value that reads it can be computed.
template <class T>
int Planner<T>::operand_of(int k, Op operation, std::size_t operand) const {
    const Value& v = program_.values[k];
    if (v.operation != operation || operand >= v.operands.size()) refuse_deferred(k);
    return v.operands[operand];
}

// The windows of stack(X Eᵀ, P), in bands
template <class T>
const Windows* Planner<T>::windows_with_bands(int S) {
    const Value& U = program_.values[operand_of(S, Op::stack, 0)];
    return storage_.windows(program_.values[U.operands[0]].name, U.shape[1] / program_.values[S].shape[1], true);
}

template class Planner<float>;
template class Planner<double>;

}  // namespace matgrad
