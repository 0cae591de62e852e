// The tasks of a program: which threads do them, and where these wait for one another.
#include <set>
#include <stdexcept>

#include "operations.h"
#include "typed_executor.h"

namespace matgrad {

namespace {

// Whether a task could change what another thread still reads, or read what another thread has not written yet.
bool conflict(const std::set<Access>& before, const std::vector<Access>& after) {
    for (const Access& b : after)
        for (auto a = before.lower_bound({b.buffer, Axis::rows, false}); a != before.end() && a->buffer == b.buffer; ++a)
            if ((a->is_written || b.is_written) && (a->axis != b.axis || a->axis == Axis::all)) return true;
    return false;
}

}  // namespace

template <class T>
TypedExecutor<T>::TypedExecutor(Program p, std::shared_ptr<ThreadPool> threads, const std::string& instruction_set)
    : Implementation(std::move(p), std::move(threads), kCacheLine / sizeof(T), kernels<T>(instruction_set).lanes),
      kernels_(kernels<T>(instruction_set)) {
    for (std::size_t i = 0; i < program.values.size(); ++i) plan(static_cast<int>(i));
    for (const auto& [to, from] : program.copies) plan_copy(to, from);
    plan_waits();
    scratch_ = reserve(scratch_size_ * sizeof(T));
    for (int i = 0; i < pool->size(); ++i) thread_scratch_.push_back(reserve(thread_scratch_size_ * sizeof(T)));
}

// -- tasks ----------------------------------------------------------------------------------------------------

template <class T>
void TypedExecutor<T>::plan(int i) {
    const Value& v = program.values[i];
    operands_.push_back(place(i));
    if (v.operation == Op::input || v.operation == Op::number || v.buffer < 0) return;
    const Kind kind = row_of(v.operation).kind;
    if (kind == Kind::collective)
        plan_collective(i);
    else if (v.shape.empty())
        plan_scalar(i);
    else if (kind == Kind::elementwise)
        plan_elementwise(i);
    else if (kind == Kind::product)
        plan_product(i);
    else if (is_of_weights(v))
        plan_sparse_product(i);
    else if (is_sparse_product(v.operation) || v.operation == Op::transposed_sum)
        plan_sparse_sum(i);
    else if (v.operation == Op::dense)
        plan_dense(i);
    else if (v.operation == Op::sampled_product || v.operation == Op::sampled_sum)
        plan_sampled_product(i);
    else
        plan_other(i);
}

template <class T>
Task& TypedExecutor<T>::add(int value, Split split, std::function<void(const Worker&)> work) {
    group_ = nullptr;
    return tasks_.emplace_back(Task{value, split, std::move(work)});
}

// Teams need not wait for one another while each goes on with its own examples.
template <class T>
void TypedExecutor<T>::plan_waits() {
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
std::vector<Access> TypedExecutor<T>::accesses(const Task& task) const {
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
Axis TypedExecutor<T>::axis(const Shape& shape, const Operand& x) const {
    if (x.buffer < 0) return Axis::all;
    const Index distance = shape[1] == examples ? x.column_stride : x.row_stride;  // between two examples
    const Shape& stored = program.buffers[x.buffer].shape;
    if (stored[1] == examples && distance == 1) return Axis::columns;
    if (stored[0] == examples && distance == strides[x.buffer]) return Axis::rows;
    return Axis::all;
}

template <class T>
bool TypedExecutor<T>::has_examples(const Shape& shape) const {
    return examples && (shape[0] == examples || shape[1] == examples);
}

// -- operations on elements -----------------------------------------------------------------------------------

template <class T>
void TypedExecutor<T>::plan_scalar(int i) {
    const Value& v = program.values[i];
    const int out = v.buffer;
    if (v.operation == Op::elements_sum) {
        const Operand x = unsplit(i, operand(v.operands[0]));
        const Shape shape = program.values[v.operands[0]].shape;
        add(i, Split::alone, [=, this](const Worker&) {
            T number;
            write(out, elements_sum(view(x, shape[0], shape[1], number)));
        });
        return;
    }
    std::vector<Scalar> x;
    for (int k : v.operands) x.push_back(scalar(k));
    add_scalar(i, out, v.operation, x);
}

template <class T>
void TypedExecutor<T>::plan_elementwise(int i) {
    const Value& v = program.values[i];
    std::vector<Operand> matrices;
    Scalar c;
    for (int k : v.operands) {
        if (program.values[k].shape.empty())
            c = scalar(k);
        else
            matrices.push_back(operand(k));
    }
    append(i, v.shape, {v.operation, v.buffer, matrices[0], matrices.back(), c});
}

template <class T>
void TypedExecutor<T>::plan_copy(int to, int from) {
    const Shape& shape = program.buffers[to].shape;
    const int last = static_cast<int>(program.values.size()) - 1;
    if (shape.empty())
        add_scalar(last, to, Op::copy, {Scalar{0, from}});
    else
        copy(last, to, from);
}

// out = f(x), for scalars; whole numbers are computed without rounding
template <class T>
void TypedExecutor<T>::add_scalar(int value, int out, Op operation, const std::vector<Scalar>& x) {
    const bool is_whole = program.buffers[out].dtype.starts_with("int");
    add(value, Split::alone, [=, this](const Worker&) {
        is_whole ? write(out, count(operation, x)) : write(out, compute(operation, x));
    });
}

// Adds an instruction to the preceding group if it may join that, else to a new group.
template <class T>
void TypedExecutor<T>::append(int value, const Shape& shape, Instruction instruction) {
    bool is_any_split = is_split[instruction.out];
    for (Operand* x : {&instruction.x, &instruction.y}) {
        if (x->buffer < 0 || !is_split[x->buffer]) continue;
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
    auto group = std::make_shared<Group>(Group{shape[0], shape[1], has_examples(shape), {instruction}});
    const auto work = [this, group](const Worker& worker) { run_group(*group, worker); };
    if (group->by_examples)
        add(value, Split::examples, work).group = group;
    else
        add(value, shape[0] * shape[1], work);
    group_ = is_plain ? group : nullptr;
}

template <class T>
void TypedExecutor<T>::copy(int value, int to, int from) {
    const Shape shape = program.buffers[to].shape;
    append(value, shape, {Op::copy, to, direct(from), direct(from), {}});
}

// out = x, of this shape, if the columns of x are contiguous
template <class T>
void TypedExecutor<T>::transpose(int value, const Shape& shape, int out, const Operand& x) {
    const std::vector<Index>& chosen = chosen_rows[x.buffer];
    const auto part = [=, this, &chosen](Index from, Index to, Index first, Index last, int strip) {  // columns of some rows of out
        const View<const T> X{data(x.buffer, strip), shape[1], shape[0], x.column_stride, x.row_stride};
        const Index row = chosen.empty() ? from : 0;
        kernels_.transpose(data(out, strip) + from, strides[out], {&X(row, 0), to - from, X.columns, X.row_stride, 1},
                           chosen.empty() ? nullptr : chosen.data() + from, first, last);
    };
    if (has_examples(shape)) {
        const bool are_columns = shape[1] == examples;
        add(value, Split::examples, [=, this](const Worker& worker) {
            for_strips(worker, [&](int strip, Index begin, Index end, const Worker& member) {
                const auto [from, to] = whole_lines(0, shape[are_columns ? 0 : 1], member);
                if (are_columns)
                    part(begin, end, from, to, strip);
                else
                    part(from, to, begin, end, strip);
            });
        }).accesses = {{out, axis(shape, direct(out)), true}, {x.buffer, axis(shape, x), false}};
        return;
    }
    add(value, shape[0] * shape[1], [=, this](const Worker& worker) {
        const auto [from, to] = whole_lines(0, shape[0], worker);
        part(0, shape[1], from, to, 0);
    });
}

// -- other operations ---------------------------------------------------------------------------------------------

template <class T>
void TypedExecutor<T>::plan_other(int i) {
    const Value& v = program.values[i];
    const Op operation = v.operation;
    const int out = v.buffer;
    const Index rows = v.shape[0], columns = v.shape[1];
    if (operation == Op::uniform) {
        const Scalar seed = scalar(v.operands[0]), count = scalar(v.operands[1]);
        const auto part = [=, this](Index first, Index last, Index from, Index to, int strip) {  // columns of some rows
            kernels_.uniform(data(out, strip) + first * strides[out] + from, strides[out], hash_key(seed, count),
                             static_cast<std::uint32_t>(first * columns + from), columns, last - first, to - from);
        };
        if (columns == examples)
            add(i, Split::examples, [=, this](const Worker& worker) {
                for_strips(worker, [&](int strip, Index begin, Index end, const Worker& member) {
                    part(member.begin(rows), member.end(rows), begin, end, strip);
                });
            }).accesses = {{out, Axis::columns, true}};
        else
            add(i, rows * columns, [=](const Worker& worker) {
                part(worker.begin(rows), worker.end(rows), 0, columns, 0);
            });
    } else if (operation == Op::uniform_on) {
        const Support& S = supports[program.values[v.operands[0]].name];
        const Scalar seed = scalar(v.operands[1]), count = scalar(v.operands[2]);
        const Index D = program.values[v.operands[0]].shape[1];
        add(i, columns, [=, this, &S](const Worker& worker) {
            const std::uint32_t key = hash_key(seed, count);
            const SparseIndex& W = S.by_rows;
            for (Index r = W.begin(worker); r < W.end(worker); ++r)
                for (std::int64_t p = W.starts[r]; p < W.starts[r + 1]; ++p)
                    data(out)[p] = hashed<T>(static_cast<std::uint32_t>(r * D + W.columns[p]), key);
        });
    } else if (operation == Op::identity || operation == Op::diag || operation == Op::Diag) {
        const bool is_identity = operation == Op::identity;
        const Operand x = is_identity ? Operand{} : unsplit(i, operand(v.operands[0]));
        const Shape s = is_identity ? v.shape : program.values[v.operands[0]].shape;
        const int to = unsplit_buffer(out);
        add(i, Split::alone, [=, this](const Worker&) {
            T number;
            const View<const T> X = view(x, s[0], s[1], number);
            const auto element = [&](Index r, Index c) {
                if (operation == Op::diag) return X(r, r);
                if (r != c) return T(0);
                return is_identity ? T(1) : s[0] == 1 ? X(0, r) : X(r, 0);
            };
            for (Index r = 0; r < rows; ++r)
                for (Index c = 0; c < columns; ++c) data(to)[r * strides[to] + c] = element(r, c);
        });
        if (to != out) copy(i, out, to);
    } else {
        plan_reduction(i);
    }
}

// Its operand and its result are in buffers with names, which are neither padded nor split.
template <class T>
void TypedExecutor<T>::plan_collective(int i) {
    add(i, Split::alone, [=, this](const Worker&) {
        const Subnormals as_elsewhere(Subnormals::kept);
        (*collective)(i);
    });
}

template <class T>
void TypedExecutor<T>::plan_reduction(int i) {
    const Value& v = program.values[i];
    const Op name = v.operation;
    const int out = v.buffer;
    const Shape s = program.values[v.operands[0]].shape;
    const bool is_sum = name == Op::columns_sum || name == Op::rows_sum, of_columns = name == Op::columns_sum || name == Op::columns_max;
    const Index results = s[of_columns ? 1 : 0];
    Operand x = operand(v.operands[0]);
    if (x.buffer >= 0 && is_split[x.buffer]) {
        if (name == Op::rows_sum && x.column_stride == 1) {
            scratch_size_ = std::max(scratch_size_, results * strips);
            add(i, Split::parts, [=, this](const Worker& worker) { sum_by_examples(out, x.buffer, worker); });
            return;
        }
        if (results != examples || axis(v.shape, x) != Axis::columns) x = unsplit(i, x);
    }
    const auto part = [=, this](Index first, Index last, int strip) {
        T number;
        const View<const T> X = view(x, s[0], s[1], number, strip);
        if (of_columns)
            (is_sum ? kernels_.columns_sum : kernels_.columns_max)(data(out, strip), X, first, last);
        else
            (is_sum ? kernels_.rows_sum : kernels_.rows_max)(data(out, strip), strides[out], X, first, last);
    };
    if (results == examples)
        add(i, Split::examples, [=, this](const Worker& worker) {
            for_strips(worker, [&](int strip, Index begin, Index end, const Worker& member) {
                const auto [from, to] = whole_lines(begin, end, member);
                part(from, to, strip);
            });
        }).accesses = {{out, axis(v.shape, direct(out)), true}, {x.buffer, axis(v.shape, x), false}};
    else
        add(i, s[0] * s[1], [=](const Worker& worker) { part(worker.begin(results), worker.end(results), 0); });
}

// -- operands -------------------------------------------------------------------------------------------------

template <class T>
Scalar TypedExecutor<T>::scalar(int k) const {
    const Value& v = program.values[k];
    return v.operation == Op::number ? Scalar{v.number, -1} : Scalar{0, v.buffer};
}

// Where a value is, from where its operands are.
template <class T>
Operand TypedExecutor<T>::place(int k) const {
    const Value& v = program.values[k];
    if (v.operation == Op::full) return {-1, 0, 0, scalar(v.operands[0])};
    if (v.buffer >= 0) return direct(v.buffer);
    if (v.operands.empty()) return {};
    Operand x = operand(v.operands[0]);
    if (v.operation == Op::transpose) std::swap(x.row_stride, x.column_stride);
    if (v.operation == Op::row_repeat) x.row_stride = 0;
    if (v.operation == Op::column_repeat) x.column_stride = 0;
    return x;
}

// The operand for a task that reads all examples at once: if its matrix is split, a copy in one block of memory.
template <class T>
Operand TypedExecutor<T>::unsplit(int value, Operand x) {
    if (x.buffer < 0 || !is_split[x.buffer]) return x;
    const int copied = unsplit_buffer(x.buffer);
    copy(value, copied, x.buffer);
    for (Index* stride : {&x.row_stride, &x.column_stride})
        if (*stride > 1) *stride = strides[copied];
    x.buffer = copied;
    return x;
}

// A buffer for the same matrix in one block of memory: a second buffer if the matrix is split, else the buffer itself.
template <class T>
int TypedExecutor<T>::unsplit_buffer(int buffer) {
    if (!is_split[buffer]) return buffer;
    const auto found = unsplit_buffers_.find(buffer);
    if (found != unsplit_buffers_.end()) return found->second;
    const Buffer original = program.buffers[buffer];
    return unsplit_buffers_[buffer] = add_buffer(original.shape, original.dtype);
}

// The buffer of an operand of a sparse product, which must not be a view.
template <class T>
int TypedExecutor<T>::stored_buffer(int k) const {
    const Value& v = program.values[k];
    if (v.buffer < 0) throw std::invalid_argument("value " + std::to_string(k) + ": a sparse product cannot read a view");
    return v.buffer;
}

// The buffer of a dense operand or of the result of a sparse product: its rows are padded, so it is the executor's own.
template <class T>
int TypedExecutor<T>::padded_buffer(int k) const {
    const int buffer = stored_buffer(k);
    if (!is_padded[buffer])
        throw std::invalid_argument("value " + std::to_string(k) + ": a sparse product cannot read an input, only a copy of it");
    return buffer;
}

template class TypedExecutor<float>;
template class TypedExecutor<double>;

}  // namespace matgrad
