// The tasks of a program: which threads do them, and where these wait for one another.
#include <set>
#include <stdexcept>

#include "operations.h"
#include "planner.h"

namespace matgrad {

namespace {

constexpr Index kSmall = 8192;  // elements below which one thread is faster than several

// Whether a task could change what another thread still reads, or read what another thread has not written yet.
bool conflict(const std::set<Access>& before, const std::vector<Access>& after) {
    for (const Access& b : after)
        for (auto a = before.lower_bound({b.buffer, Axis::rows, false}); a != before.end() && a->buffer == b.buffer; ++a)
            if ((a->is_written || b.is_written) && (a->axis != b.axis || a->axis == Axis::all)) return true;
    return false;
}

}  // namespace

template <class T>
std::vector<Task> Planner<T>::plan() {
    for (std::size_t i = 0; i < program_.values.size(); ++i) plan(static_cast<int>(i));
    for (const auto& [to, from] : program_.copies) plan_copy(to, from);
    plan_waits();
    calculator_.scratch = storage_.reserve(scratch_size_ * sizeof(T));
    for (int i = 0; i < layout_.threads(); ++i)
        calculator_.thread_scratch.push_back(storage_.reserve(thread_scratch_size_ * sizeof(T)));
    return std::move(tasks_);
}

// -- tasks ----------------------------------------------------------------------------------------------------

template <class T>
void Planner<T>::plan(int i) {
    const Value& v = program_.values[i];
    operands_.push_back(place(i));
    if (v.operation == Op::input || v.operation == Op::number || v.buffer < 0) return;
    check_readable(i);
    const Kind kind = row_of(v.operation).kind;
    if (kind == Kind::collective) return plan_collective(i);
    if (v.shape.empty()) return plan_scalar(i);
    if (kind == Kind::elementwise) return plan_elementwise(i);
    if (kind == Kind::reduction) return plan_reduction(i);
    if (layout_.examples() && Layout::is_of_weights(program_, v)) return plan_sparse_product(i);
    switch (v.operation) {
        case Op::matmul:
        case Op::product_sum: return plan_product(i);
        case Op::block_product:
        case Op::block_transposed_product:
        case Op::diag_product: return plan_block_product(i);
        case Op::one_hot_product:
        case Op::one_hot_transposed_product: return plan_one_hot_product(i);
        case Op::gather: return plan_selection(i);
        case Op::scatter: return plan_added_windows(i) || plan_shared(i) ? void() : plan_selection(i);
        case Op::sparse_product:
        case Op::sparse_transposed_product:
        case Op::transposed_sum: return plan_sparse_sum(i);
        case Op::dense: return plan_dense(i);
        case Op::sampled_product:
        case Op::sampled_sum: return plan_sampled_product(i);
        case Op::uniform: return plan_uniform(i);
        case Op::uniform_on: return plan_uniform_on(i);
        default: return plan_diagonal(i);
    }
}

template <class T>
Task& Planner<T>::add(int value, Split split, std::function<void(const Worker&)> work) {
    group_ = nullptr;
    return tasks_.emplace_back(Task{value, split, std::move(work)});
}

template <class T>
Task& Planner<T>::add(int value, Index size, std::function<void(const Worker&)> work) {
    return add(value, size < kSmall ? Split::alone : Split::parts, std::move(work));
}

template <class T>
void Planner<T>::add_scalar(int value, int out, Op operation, const std::vector<Scalar>& x) {
    add(value, Split::alone, [=, &on = calculator_](const Worker&) { on.compute_scalar(out, operation, x); });
}

// Teams need not wait for one another while each goes on with its own examples.
template <class T>
void Planner<T>::plan_waits() {
    std::set<Access> since;  // all accesses since the threads last waited
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
        const std::vector<Access> now = accesses(tasks_[i]);
        if (i > 0) {
            Task& before = tasks_[i - 1];
            const bool all = before.split != tasks_[i].split || before.split == Split::parts || conflict(since, now);
            before.wait = all ? Wait::all : before.split == Split::examples ? Wait::team : Wait::none;
            if (all) since.clear();
        }
        since.insert(now.begin(), now.end());
    }
}

template <class T>
std::vector<Access> Planner<T>::accesses(const Task& task) const {
    if (task.split != Split::examples) return {};
    std::vector<Access> found = task.accesses;
    if (task.group)
        for (const Instruction& instruction : task.group->instructions) {
            const Shape shape = {task.group->rows, task.group->columns};
            found.push_back({instruction.out, axis(shape, direct(instruction.out)), true});
            for (const Operand& x : {instruction.x, instruction.y})
                if (x.buffer >= 0) found.push_back({x.buffer, axis(shape, x), false});
        }
    return found;
}

// How a task with a result of this shape goes through an operand.
template <class T>
Axis Planner<T>::axis(const Shape& shape, const Operand& x) const {
    if (x.buffer < 0) return Axis::all;
    const Index distance = shape[1] == layout_.examples() ? x.column_stride : x.row_stride;  // between two examples
    const Shape& stored = program_.buffers[x.buffer].shape;
    if (stored[1] == layout_.examples() && distance == 1) return Axis::columns;
    if (stored[0] == layout_.examples() && distance == layout_.stride(x.buffer)) return Axis::rows;
    return Axis::all;
}

// -- operations on elements -----------------------------------------------------------------------------------

template <class T>
void Planner<T>::plan_scalar(int i) {
    const Value& v = program_.values[i];
    const int out = v.buffer;
    if (v.operation == Op::elements_sum) {
        const Operand x = unsplit(i, operand(v.operands[0]));
        const Shape shape = program_.values[v.operands[0]].shape;
        add(i, Split::alone, [=, &on = calculator_](const Worker&) {
            T number;
            on.storage.write(out, on.elements_sum(on.view(x, shape[0], shape[1], number)));
        });
        return;
    }
    std::vector<Scalar> x;
    for (int k : v.operands) x.push_back(scalar(k));
    add_scalar(i, out, v.operation, x);
}

template <class T>
void Planner<T>::plan_elementwise(int i) {
    const Value& v = program_.values[i];
    std::vector<Operand> matrices;
    Scalar c;
    for (int k : v.operands) {
        if (program_.values[k].shape.empty())
            c = scalar(k);
        else
            matrices.push_back(operand(k));
    }
    append(i, v.shape, {v.operation, v.buffer, matrices[0], matrices.back(), c});
}

template <class T>
void Planner<T>::plan_copy(int to, int from) {
    const Shape& shape = program_.buffers[to].shape;
    const int last = static_cast<int>(program_.values.size()) - 1;
    if (shape.empty())
        add_scalar(last, to, Op::copy, {Scalar{0, from}});
    else
        copy(last, to, from);
}

// Adds an instruction to the preceding group if it may join that, else to a new group.
template <class T>
void Planner<T>::append(int value, const Shape& shape, Instruction instruction) {
    bool is_any_split = layout_.is_split(instruction.out);
    for (Operand* x : {&instruction.x, &instruction.y}) {
        if (x->buffer < 0 || !layout_.is_split(x->buffer)) continue;
        if (axis(shape, *x) != Axis::columns) *x = unsplit(value, *x);
        is_any_split = true;
    }
    if (instruction.operation == Op::copy && instruction.x.row_stride == 1 && instruction.x.column_stride > 1)
        return transpose(value, shape, instruction.out, instruction.x);
    const auto is_row = [](const Operand& x) { return x.buffer < 0 || x.column_stride <= 1; };
    const bool is_plain = is_row(instruction.x) && is_row(instruction.y);
    bool joins = group_ && is_plain && group_->rows == shape[0] && group_->columns == shape[1];
    joins = joins && (group_->by_examples || !is_any_split);
    if (joins)
        for (int buffer : group_->read_by_product) joins = joins && buffer != instruction.out;
    if (joins) {
        group_->instructions.push_back(instruction);
        return;
    }
    auto group = std::make_shared<Group>(Group{shape[0], shape[1], layout_.has_examples(shape), {instruction}});
    const auto work = [&on = calculator_, group](const Worker& worker) { on.run_group(*group, worker); };
    if (group->by_examples)
        add(value, Split::examples, work).group = group;
    else
        add(value, shape[0] * shape[1], work);
    group_ = is_plain ? group : nullptr;
}

template <class T>
void Planner<T>::copy(int value, int to, int from) {
    const Shape shape = program_.buffers[to].shape;
    append(value, shape, {Op::copy, to, direct(from), direct(from), {}});
}

// out = x, of this shape, if the columns of x are contiguous
template <class T>
void Planner<T>::transpose(int value, const Shape& shape, int out, const Operand& x) {
    const std::vector<Index>& chosen = batch_.chosen_rows(x.buffer);
    const auto part = [=, &on = calculator_, &chosen](Index from, Index to, Index first, Index last,
                                                      int strip) {  // columns of some rows of out
        const View<const T> X{on.data(x.buffer, strip), shape[1], shape[0], x.column_stride, x.row_stride};
        const Index row = chosen.empty() ? from : 0;
        on.kernels.transpose(on.data(out, strip) + from, on.layout.stride(out),
                             {&X(row, 0), to - from, X.columns, X.row_stride, 1}, chosen.empty() ? nullptr : chosen.data() + from,
                             first, last);
    };
    if (layout_.has_examples(shape)) {
        const bool are_columns = shape[1] == layout_.examples();
        add(value, Split::examples, [=, &on = calculator_](const Worker& worker) {
            on.layout.for_strips(worker, [&](int strip, Index begin, Index end, const Worker& member) {
                const auto [from, to] = on.layout.whole_lines(0, shape[are_columns ? 0 : 1], member);
                if (are_columns)
                    part(begin, end, from, to, strip);
                else
                    part(from, to, begin, end, strip);
            });
        }).accesses = {{out, axis(shape, direct(out)), true}, {x.buffer, axis(shape, x), false}};
        return;
    }
    add(value, shape[0] * shape[1], [=, &on = calculator_](const Worker& worker) {
        const auto [from, to] = on.layout.whole_lines(0, shape[0], worker);
        part(0, shape[1], from, to, 0);
    });
}

// -- other operations ---------------------------------------------------------------------------------------------

template <class T>
void Planner<T>::plan_uniform(int i) {
    const Value& v = program_.values[i];
    const int out = v.buffer;
    const Index rows = v.shape[0], columns = v.shape[1];
    const Scalar seed = scalar(v.operands[0]), count = scalar(v.operands[1]);
    const auto part = [=, &on = calculator_](Index first, Index last, Index from, Index to, int strip) {  // columns of some rows
        const Index stride = on.layout.stride(out);
        on.kernels.uniform(on.data(out, strip) + first * stride + from, stride, on.hash_key(seed, count),
                           static_cast<std::uint32_t>(first * columns + from), columns, last - first, to - from);
    };
    if (columns == layout_.examples())
        add(i, Split::examples, [=, &layout = layout_](const Worker& worker) {
            layout.for_strips(worker, [&](int strip, Index begin, Index end, const Worker& member) {
                part(member.begin(rows), member.end(rows), begin, end, strip);
            });
        }).accesses = {{out, Axis::columns, true}};
    else
        add(i, rows * columns, [=](const Worker& worker) { part(worker.begin(rows), worker.end(rows), 0, columns, 0); });
}

template <class T>
void Planner<T>::plan_uniform_on(int i) {
    const Value& v = program_.values[i];
    const int out = v.buffer;
    const Support& S = support(v.operands[0]);
    const Scalar seed = scalar(v.operands[1]), count = scalar(v.operands[2]);
    const Index D = program_.values[v.operands[0]].shape[1];
    add(i, v.shape[1], [=, &on = calculator_, &S](const Worker& worker) {
        const std::uint32_t key = on.hash_key(seed, count);
        const SparseIndex& W = S.by_rows;
        for (Index r = W.begin(worker); r < W.end(worker); ++r)
            for (std::int64_t p = W.starts[r]; p < W.starts[r + 1]; ++p)
                on.data(out)[p] = hashed<T>(static_cast<std::uint32_t>(r * D + W.columns[p]), key);
    });
}

template <class T>
void Planner<T>::plan_diagonal(int i) {
    const Value& v = program_.values[i];
    const Op operation = v.operation;
    const Index rows = v.shape[0], columns = v.shape[1];
    const bool is_identity = operation == Op::identity;
    const Operand x = is_identity ? Operand{} : unsplit(i, operand(v.operands[0]));
    const Shape s = is_identity ? v.shape : program_.values[v.operands[0]].shape;
    const int out = unsplit_buffer(v.buffer);
    add(i, Split::alone, [=, &on = calculator_](const Worker&) {
        T number;
        const View<const T> X = on.view(x, s[0], s[1], number);
        const auto element = [&](Index r, Index c) {
            if (operation == Op::diag) return X(r, r);
            if (r != c) return T(0);
            return is_identity ? T(1) : s[0] == 1 ? X(0, r) : X(r, 0);
        };
        for (Index r = 0; r < rows; ++r)
            for (Index c = 0; c < columns; ++c) on.data(out)[r * on.layout.stride(out) + c] = element(r, c);
    });
    if (out != v.buffer) copy(i, v.buffer, out);
}

// Its operand and its result are in buffers with names, which are neither padded nor split.
template <class T>
void Planner<T>::plan_collective(int i) {
    add(i, Split::alone, [i, &collective = collective_](const Worker&) {
        const Subnormals as_elsewhere(Subnormals::kept);
        collective(i);
    });
}

template <class T>
void Planner<T>::plan_reduction(int i) {
    const Value& v = program_.values[i];
    const Op name = v.operation;
    const int out = v.buffer;
    const Shape s = program_.values[v.operands[0]].shape;
    const bool is_sum = name == Op::columns_sum || name == Op::rows_sum,
               of_columns = name == Op::columns_sum || name == Op::columns_max;
    const Index results = s[of_columns ? 1 : 0];
    Operand x = operand(v.operands[0]);
    if (x.windows) return plan_windows_max(i);
    if (x.buffer >= 0 && layout_.is_split(x.buffer)) {
        if (name == Op::rows_sum && x.column_stride == 1) {
            scratch_size_ = std::max(scratch_size_, results * layout_.strips());
            add(i, Split::parts, [=, &on = calculator_](const Worker& worker) { on.sum_by_examples(out, x.buffer, worker); });
            return;
        }
        if (results != layout_.examples() || axis(v.shape, x) != Axis::columns) x = unsplit(i, x);
    }
    const auto part = [=, &on = calculator_](Index first, Index last, int strip) {
        T number;
        const View<const T> X = on.view(x, s[0], s[1], number, strip);
        if (of_columns)
            (is_sum ? on.kernels.columns_sum : on.kernels.columns_max)(on.data(out, strip), X, first, last);
        else
            (is_sum ? on.kernels.rows_sum : on.kernels.rows_max)(on.data(out, strip), on.layout.stride(out), X, first, last);
    };
    if (results == layout_.examples())
        add(i, Split::examples, [=, &on = calculator_](const Worker& worker) {
            on.layout.for_strips(worker, [&](int strip, Index begin, Index end, const Worker& member) {
                const auto [from, to] = on.layout.whole_lines(begin, end, member);
                part(from, to, strip);
            });
        }).accesses = {{out, axis(v.shape, direct(out)), true}, {x.buffer, axis(v.shape, x), false}};
    else
        add(i, s[0] * s[1], [=](const Worker& worker) { part(worker.begin(results), worker.end(results), 0); });
}

// -- operands -------------------------------------------------------------------------------------------------

template <class T>
Scalar Planner<T>::scalar(int k) const {
    const Value& v = program_.values[k];
    return v.operation == Op::number ? Scalar{v.number, -1} : Scalar{0, v.buffer};
}

// Where a value is, from where its operands are.
template <class T>
Operand Planner<T>::place(int k) {
    const Value& v = program_.values[k];
    if (v.operation == Op::full) return {-1, 0, 0, scalar(v.operands[0]), nullptr};
    if (v.buffer >= 0) return direct(v.buffer);
    if (v.operands.empty()) return {};
    if (v.operation == Op::gather) return operand(v.operands[1]);  // with windows as soon as it is stacked
    if (row_of(v.operation).kind != Kind::view) return {};
    Operand x = operand(v.operands[0]);
    if (x.windows) refuse_deferred(k);
    if (const Value& U = program_.values[v.operands[0]]; is_deferred(v.operands[0])) {
        if (v.operation != Op::stack || U.operation != Op::gather) return {};
        if (x.column_stride != 1) refuse_deferred(k);
        x.windows = storage_.windows(program_.values[U.operands[0]].name, U.shape[1] / v.shape[1]);
        return x;
    }
    if (is_stack(v.operation)) {
        const bool is_plain = x.buffer >= 0 && x.column_stride == 1 && x.row_stride == program_.values[v.operands[0]].shape[1];
        if (!is_plain || layout_.is_padded(x.buffer))
            throw std::invalid_argument("value " + std::to_string(k) + ": a stack cannot read another view, only a copy of it");
        x.row_stride = v.shape[1];
    }
    if (v.operation == Op::transpose) std::swap(x.row_stride, x.column_stride);
    if (v.operation == Op::row_repeat) x.row_stride = 0;
    if (v.operation == Op::column_repeat) x.column_stride = 0;
    return x;
}

// Whether a value is computed where it is read.
template <class T>
bool Planner<T>::is_deferred(int k) const {
    const Value& v = program_.values[k];
    return v.buffer < 0 && is_deferrable(v);
}

// Whether a value is deferred, or a view of one that is.
template <class T>
bool Planner<T>::reads_deferred(int k) const {
    while (row_of(program_.values[k].operation).kind == Kind::view) k = program_.values[k].operands[0];
    return is_deferred(k);
}

// Throws if a value reads a deferred one but as a factor or the maxima of windows, or to add it to windows.
template <class T>
void Planner<T>::check_readable(int i) const {
    const Value& v = program_.values[i];
    const bool is_product = v.operation == Op::matmul || v.operation == Op::product_sum;
    int windows = 0;
    for (std::size_t j = 0; j < v.operands.size(); ++j) {
        const int k = v.operands[j];
        if (!reads_deferred(k) || v.operation == Op::scatter) continue;
        const bool is_factor = is_product && j + 2 >= v.operands.size() && ++windows == 1;
        if (!operands_[k].windows || !(is_factor || v.operation == Op::rows_max)) refuse_deferred(i);
    }
}

template <class T>
void Planner<T>::refuse_deferred(int i) const {
    throw std::invalid_argument("value " + std::to_string(i) + ": it cannot read a value without memory");
}

// The operand for a task that reads all examples at once: if its matrix is split, a copy in one block of memory.
template <class T>
Operand Planner<T>::unsplit(int value, Operand x) {
    if (x.buffer < 0 || !layout_.is_split(x.buffer)) return x;
    const int copied = unsplit_buffer(x.buffer);
    copy(value, copied, x.buffer);
    for (Index* stride : {&x.row_stride, &x.column_stride})
        if (*stride > 1) *stride = layout_.stride(copied);
    x.buffer = copied;
    return x;
}

// A buffer for the same matrix in one block of memory: a second buffer if the matrix is split, else the buffer itself.
template <class T>
int Planner<T>::unsplit_buffer(int buffer) {
    if (!layout_.is_split(buffer)) return buffer;
    const auto found = unsplit_buffers_.find(buffer);
    if (found != unsplit_buffers_.end()) return found->second;
    const Buffer original = program_.buffers[buffer];
    return unsplit_buffers_[buffer] = storage_.add(original.shape, original.dtype);
}

// The buffer of an operand of a sparse product, which must not be a view.
template <class T>
int Planner<T>::stored_buffer(int k) const {
    const Value& v = program_.values[k];
    if (v.buffer < 0) throw std::invalid_argument("value " + std::to_string(k) + ": a sparse product cannot read a view");
    return v.buffer;
}

// The buffer of a dense operand or of the result of a sparse product: its rows are padded, so it is the executor's own.
template <class T>
int Planner<T>::padded_buffer(int k) const {
    const int buffer = stored_buffer(k);
    if (!layout_.is_padded(buffer))
        throw std::invalid_argument("value " + std::to_string(k) + ": a sparse product cannot read an input, only a copy of it");
    return buffer;
}

template class Planner<float>;
template class Planner<double>;

}  // namespace matgrad
