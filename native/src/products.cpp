// The tasks of dense and sparse products.
#include "operations.h"
#include "planner.h"

namespace matgrad {

namespace {

constexpr Index kSmallWeights = 65536;  // elements of a dense matrix that fits every thread's cache

}  // namespace

template <class T>
void Planner<T>::plan_product(int i) {
    const Value& v = program_.values[i];
    const auto& x = v.operands;
    const bool has_sum = v.operation == Op::product_sum;
    Factors f{operand(x[has_sum ? 3 : 0]),
              operand(x[has_sum ? 4 : 1]),
              has_sum ? operand(x[1]) : Operand{},
              has_sum ? scalar(x[2]) : Scalar{1},
              has_sum ? scalar(x[0]) : Scalar{0},
              v.shape[0],
              v.shape[1],
              program_.values[x[has_sum ? 3 : 0]].shape[1]};
    if (has_sum && f.S.column_stride != 1) {  // start with C itself
        append(i, v.shape, {Op::copy, v.buffer, f.S, f.S, {}});
        f.S = direct(v.buffer);
    }
    if (plan_product_by_examples(i, f)) return;
    f.A = unsplit(i, f.A), f.B = unsplit(i, f.B), f.S = unsplit(i, f.S);
    add_product(i, f, v.shape);
}

// The task of a product; `shape` is that of the result, which differs from that of A B if that is added to windows.
template <class T>
void Planner<T>::add_product(int i, const Factors& f, const Shape& shape) {
    const int out = unsplit_buffer(program_.values[i].buffer);
    const Windows* windows = f.A.windows ? f.A.windows : f.B.windows ? f.B.windows : f.C;
    const Windowed windowed = f.A.windows ? Windowed::A : f.B.windows ? Windowed::B : f.C ? Windowed::C : Windowed::none;
    scratch_size_ = std::max(scratch_size_, calculator_.kernels.scratch_size(f.m, f.n, f.k, layout_.threads(), windowed));
    auto group = std::make_shared<Group>(Group{shape[0], shape[1], false, {}, {f.A.buffer, f.B.buffer}});
    add(i, f.m * f.n * f.k / 16, [=, &on = calculator_](const Worker& worker) {
        T numbers[2];
        const Product<T> P{on.view(f.A, f.m, f.k, numbers[0]),
                           on.view(f.B, f.k, f.n, numbers[1]),
                           {on.data(out), shape[0], shape[1], on.layout.stride(out), 1},
                           on.summand(f, 0),
                           on.read(f.alpha),
                           on.read(f.beta),
                           windowed,
                           windows ? *windows : Windows{}};
        Epilogue epilogue;
        if (!group->instructions.empty()) {
            epilogue.run = [&](const Tile& tile) { on.run_tile(*group, tile, worker.index, 0); };
            epilogue.fetch = [&](const Tile& tile) { on.fetch_tile(*group, tile, out); };
        }
        on.kernels.product(P, epilogue, static_cast<T*>(on.scratch.get()), worker);
    });
    if (out == program_.values[i].buffer)
        group_ = group;
    else
        copy(i, program_.values[i].buffer, out);
}

// unstack(A B, P) E, where A B is deferred
template <class T>
bool Planner<T>::plan_added_windows(int i) {
    const Value& v = program_.values[i];
    const Value& U = program_.values[v.operands[1]];
    if (!reads_deferred(v.operands[1]) || U.operation != Op::unstack) return false;
    const Value& AB = program_.values[U.operands[0]];
    if (AB.operation != Op::matmul || AB.buffer >= 0) return false;
    if (reads_deferred(AB.operands[0]) || reads_deferred(AB.operands[1])) refuse_deferred(i);
    const Operand A = operand(AB.operands[0]), B = operand(AB.operands[1]);
    const Windows* windows = storage_.windows(program_.values[v.operands[0]].name, U.shape[1] / AB.shape[1]);
    const Index k = program_.values[AB.operands[0]].shape[1];
    add_product(i, {A, B, {}, Scalar{1}, Scalar{0}, AB.shape[0], AB.shape[1], k, windows}, v.shape);
    return true;
}

// Every team multiplies small weights by its own examples, as it does in a sparse layer.
template <class T>
bool Planner<T>::plan_product_by_examples(int i, const Factors& f) {
    const int out = program_.values[i].buffer;
    const bool are_rows = f.m == layout_.examples(), are_columns = f.n == layout_.examples();
    if (are_rows == are_columns || f.k == layout_.examples() || f.k * (are_rows ? f.n : f.m) > kSmallWeights) return false;
    const Shape shape = {f.m, f.n};
    const Operand& X = are_rows ? f.A : f.B;
    if (X.buffer < 0 || axis(shape, X) == Axis::all) return false;
    auto group = std::make_shared<Group>(Group{f.m, f.n, true, {}, {f.A.buffer, f.B.buffer}});
    Task& task = add(i, Split::examples, [=, &on = calculator_](const Worker& worker) {
        on.layout.for_strips(worker, [&](int strip, Index begin, Index end, const Worker& member) {
            const Index row = are_rows ? begin : 0, rows = are_rows ? end - begin : f.m;
            const Index column = are_rows ? 0 : begin, columns = are_rows ? f.n : end - begin;
            const auto part = [](auto X, Index i, Index j, Index m, Index n) {
                X.data = &X(i, j), X.rows = m, X.columns = n;
                return X;
            };
            T numbers[2];
            const View<T> C{on.data(out, strip), f.m, f.n, on.layout.stride(out), 1};
            View<const T> S = on.summand(f, strip);
            if (S.data) S = part(S, row, column, rows, columns);
            const Product<T> P{part(on.view(f.A, f.m, f.k, numbers[0], strip), row, 0, rows, f.k),
                               part(on.view(f.B, f.k, f.n, numbers[1], strip), 0, column, f.k, columns),
                               part(C, row, column, rows, columns),
                               S,
                               on.read(f.alpha),
                               on.read(f.beta)};
            const Memory& scratch = on.thread_scratch[worker.index - member.index];  // of the first member
            on.kernels.product(P, {}, static_cast<T*>(scratch.get()) + 2 * kTile, member);
            member.wait();
            on.run_region(*group, on.share(*group, begin, end, member), worker.index, strip);
        });
    });
    for (int strip = 0; strip < layout_.strips(); ++strip) {
        const Index count = layout_.width(strip);
        const Index size = calculator_.kernels.scratch_size(are_rows ? count : f.m, are_rows ? f.n : count, f.k,
                                                            layout_.threads(), Windowed::none);
        thread_scratch_size_ = std::max(thread_scratch_size_, 2 * kTile + size);
    }
    const int weights = are_rows ? f.B.buffer : f.A.buffer;
    task.accesses = {{out, axis(shape, direct(out)), true}, {X.buffer, axis(shape, X), false}, {weights, Axis::all, false}};
    if (f.S.buffer >= 0) task.accesses.push_back({f.S.buffer, axis(shape, f.S), false});
    task.group = group;
    group_ = group;
    return true;
}

// The threads of a team share the rows of W, for the examples of the team.
template <class T>
void Planner<T>::plan_sparse_product(int i) {
    const Value& v = program_.values[i];
    const Support& S = support(v.operands[0]);
    const int out = padded_buffer(i), w = stored_buffer(v.operands[1]), x = padded_buffer(v.operands[2]);
    const bool is_transposed = v.operation == Op::sparse_transposed_product;
    const Index n = v.shape[1];
    const bool by_examples = n == layout_.examples();
    auto group = std::make_shared<Group>(Group{v.shape[0], n, by_examples, {}, {w, x}});
    const auto part = [=, &on = calculator_](const SparseIndex& W, Index first, Index last, const Worker& worker, int strip,
                                             Index begin, Index end) {
        const Index step = group->instructions.empty() ? W.rows : std::max<Index>(1, kTile / (end - begin));
        for (Index r = first; r < last; r += step) {
            const Index rows = std::min(step, last - r);
            on.kernels.sparse_product(on.padded(out, strip), W, on.data(w), on.padded(x, strip), end - begin, r, r + rows);
            on.run_region(*group, {r, begin, rows, end - begin}, worker.index, strip);
        }
    };
    Task& task = add(i, by_examples ? Split::examples : Split::parts, [=, &on = calculator_, &S](const Worker& worker) {
        const SparseIndex& W = is_transposed ? S.by_columns : S.by_rows;
        if (!by_examples) return part(W, W.begin(worker), W.end(worker), worker, 0, 0, n);
        on.layout.for_strips(worker, [&](int strip, Index begin, Index end, const Worker& member) {
            part(W, W.begin(member), W.end(member), worker, strip, begin, end);
        });
    });
    task.accesses = {{out, Axis::columns, true}, {w, Axis::all, false}, {x, Axis::columns, false}};
    task.group = group;
    group_ = group;
}

// β·C + α·A B for a sparse A, by rows of A: products with sparse examples, and with the transpose of sparse weights in a sum
template <class T>
void Planner<T>::plan_sparse_sum(int i) {
    const Value& v = program_.values[i];
    const auto& x = v.operands;
    const bool has_sum = v.operation == Op::transposed_sum, is_transposed = v.operation != Op::sparse_product;
    const Support& S = support(x[0]);
    const Scalar beta = has_sum ? scalar(x[1]) : Scalar{0}, alpha = has_sum ? scalar(x[3]) : Scalar{1};
    const int w = stored_buffer(x[has_sum ? 4 : 1]);
    stored_buffer(x.back());
    const Operand B = unsplit(i, operand(x.back()));
    Operand C = has_sum ? operand(x[2]) : Operand{};
    if (has_sum && C.column_stride != 1) {  // start with C itself
        append(i, v.shape, {Op::copy, v.buffer, C, C, {}});
        C = direct(v.buffer);
    }
    C = unsplit(i, C);
    const int out = unsplit_buffer(v.buffer);
    const Index m = v.shape[0], n = v.shape[1], step = std::max<Index>(1, kTile / n);
    auto group = std::make_shared<Group>(Group{m, n, false, {}, {w, B.buffer}});
    add(i, Split::parts, [=, &on = calculator_, &S](const Worker& worker) {
        const SparseIndex& A = is_transposed ? S.by_columns : S.by_rows;
        const SparseSum<T> sum{A,
                               on.data(w),
                               {on.data(B.buffer), is_transposed ? S.by_rows.rows : S.by_columns.rows, n, B.row_stride, 1},
                               {has_sum ? on.data(C.buffer) : nullptr, m, n, C.row_stride, 1},
                               {on.data(out), m, n, on.layout.stride(out), 1},
                               on.read(alpha),
                               on.read(beta)};
        const Index last = A.end(worker, true);
        for (Index r = A.begin(worker, true); r < last; r += step) {
            const Index rows = std::min(step, last - r);
            on.kernels.sparse_sum(sum, r, r + rows);
            on.run_region(*group, {r, 0, rows, n}, worker.index, 0);
        }
    });
    if (out == v.buffer)
        group_ = group;
    else
        copy(i, v.buffer, out);
}

// A sparse matrix as a dense one
template <class T>
void Planner<T>::plan_dense(int i) {
    const Value& v = program_.values[i];
    const Support& S = support(v.operands[0]);
    const int w = stored_buffer(v.operands[1]), out = unsplit_buffer(v.buffer);
    const Index rows = v.shape[0], columns = v.shape[1];
    add(i, rows * columns, [=, &on = calculator_, &S](const Worker& worker) {
        const SparseIndex& A = S.by_rows;
        for (Index r = worker.begin(rows); r < worker.end(rows); ++r) {
            T* row = on.data(out) + r * on.layout.stride(out);
            std::fill_n(row, columns, T(0));
            for (std::int64_t p = A.starts[r]; p < A.starts[r + 1]; ++p) row[A.columns[p]] += on.data(w)[p];
        }
    });
    if (out != v.buffer) copy(i, v.buffer, out);
}

template <class T>
void Planner<T>::plan_sampled_product(int i) {
    const Value& v = program_.values[i];
    const bool is_sum = v.operation == Op::sampled_sum;
    const auto& x = v.operands;
    const Support& S = support(x[0]);
    const int out = v.buffer, A = padded_buffer(x[x.size() - 2]), B = padded_buffer(x.back()),
              C = is_sum ? stored_buffer(x[2]) : -1;
    const Scalar beta = is_sum ? scalar(x[1]) : Scalar{0}, alpha = is_sum ? scalar(x[3]) : Scalar{1};
    const Shape &a = program_.buffers[A].shape, &b = program_.buffers[B].shape;
    // the teams exchange either sums over their examples, or the content of A and B: take the smaller
    const Index count = layout_.teams();
    const bool by_examples = b[1] == layout_.examples() && count > 1 && 2 * v.shape[1] < (a[0] + b[0]) * b[1];
    if (by_examples) scratch_size_ = std::max(scratch_size_, 2 * calculator_.chunk_size() * count);
    add(i, Split::parts, [=, &on = calculator_, &S](const Worker& worker) {
        const T factor = on.read(alpha), of_sum = on.read(beta);
        if (by_examples)
            on.sample_by_examples(out, of_sum, C, factor, {&S.by_rows, A, B}, worker);
        else
            on.sample_by_elements(out, of_sum, C, factor, {&S.by_rows, A, B}, worker);
    });
}

template class Planner<float>;
template class Planner<double>;

}  // namespace matgrad
