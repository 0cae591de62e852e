// Running programs: all threads go through the same list of tasks, and wait for one another between them.
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <stdexcept>

#include "matgrad/program.h"

namespace matgrad {

namespace {

const std::map<std::string, Elementwise> kElementwise = {
    {"add", Elementwise::add},       {"subtract", Elementwise::subtract},     {"hadamard", Elementwise::hadamard},
    {"gate", Elementwise::gate},     {"add_scaled", Elementwise::add_scaled}, {"scale", Elementwise::scale},
    {"divide", Elementwise::divide}, {"power", Elementwise::power},           {"negative", Elementwise::negative},
    {"copy", Elementwise::copy},     {"exp", Elementwise::exp},               {"log", Elementwise::log},
    {"log1p", Elementwise::log1p},   {"reciprocal", Elementwise::reciprocal}, {"sqrt", Elementwise::sqrt},
    {"tanh", Elementwise::tanh},     {"erf", Elementwise::erf},               {"step", Elementwise::step},
};

constexpr Index kTile = 4096;   // elements that are worked on at a time: they fit the L1 cache
constexpr Index kSmall = 8192;  // elements below which one thread is faster than several

struct Free {
    void operator()(void* p) const { std::free(p); }
};
using Memory = std::unique_ptr<void, Free>;

Memory allocate(std::size_t bytes) {
    void* p = std::aligned_alloc(64, (std::max<std::size_t>(bytes, 1) + 63) / 64 * 64);
    if (!p) throw std::bad_alloc();
    return Memory(p);
}

// A scalar: a number, or what is in a buffer.
struct Scalar {
    double number = 0;
    int buffer = -1;
};

// A matrix in a buffer, perhaps transposed or repeated, or a scalar that is repeated.
struct Operand {
    int buffer = -1;
    Index row_stride = 0, column_stride = 0;
    Scalar scalar;
};

}  // namespace

struct Executor::Implementation {
    Implementation(Program p, std::shared_ptr<ThreadPool> threads)
        : program(std::move(p)), pool(std::move(threads)), pointers(program.buffers.size()) {
        std::vector<bool> beside_sparse(program.buffers.size());  // dense operands and results of sparse products
        for (const Value& v : program.values) {
            const bool is_product = v.operation.starts_with("sparse_"), is_sample = v.operation.starts_with("sampled_");
            if (is_product) beside_sparse[v.buffer] = true;
            for (std::size_t k = v.operands.size() - (is_product ? 1 : is_sample ? 2 : 0); k < v.operands.size(); ++k)
                if (const int buffer = program.values[v.operands[k]].buffer; buffer >= 0) beside_sparse[buffer] = true;
        }
        for (std::size_t i = 0; i < program.buffers.size(); ++i) {
            const Buffer& buffer = program.buffers[i];
            const bool is_matrix = !buffer.shape.empty(), is_owned = buffer.name.empty();
            const std::size_t size = element_size(buffer.dtype);
            const Index columns = is_matrix ? buffer.shape[1] : 1;
            const bool is_padded = is_owned && beside_sparse[i];
            strides.push_back(!is_padded ? columns : size == 4 ? padded<float>(columns) : padded<double>(columns));
            if (!is_owned) continue;
            const std::size_t bytes = size * (is_matrix ? buffer.shape[0] : 1) * strides.back();
            owned.push_back(allocate(bytes));
            std::memset(owned.back().get(), 0, bytes);  // what is beyond the columns of a row stays 0
            pointers[i] = owned.back().get();
        }
    }
    virtual ~Implementation() = default;
    virtual void run(bool timed, std::vector<double>& seconds) = 0;

    double read(const Scalar& scalar) const {
        if (scalar.buffer < 0) return scalar.number;
        const std::string& dtype = program.buffers[scalar.buffer].dtype;
        const void* p = pointers[scalar.buffer];
        if (dtype == "float32") return *static_cast<const float*>(p);
        if (dtype == "float64") return *static_cast<const double*>(p);
        if (dtype == "int32") return *static_cast<const std::int32_t*>(p);
        return static_cast<double>(*static_cast<const std::int64_t*>(p));
    }
    void write(int buffer, double x) const {
        const std::string& dtype = program.buffers[buffer].dtype;
        void* p = pointers[buffer];
        if (dtype == "float32") *static_cast<float*>(p) = static_cast<float>(x);
        if (dtype == "float64") *static_cast<double*>(p) = x;
        if (dtype == "int32") *static_cast<std::int32_t*>(p) = static_cast<std::int32_t>(x);
        if (dtype == "int64") *static_cast<std::int64_t*>(p) = static_cast<std::int64_t>(x);
    }

    Program program;
    std::shared_ptr<ThreadPool> pool;
    std::vector<void*> pointers;  // of the buffers
    std::vector<Index> strides;   // the distances of their rows
    std::map<std::string, Support> supports;
    std::vector<Memory> owned;
};

namespace {

template <class T>
class Typed : public Executor::Implementation {
public:
    Typed(Program p, std::shared_ptr<ThreadPool> threads, const std::string& instruction_set)
        : Implementation(std::move(p), std::move(threads)), kernels_(kernels<T>(instruction_set)) {
        for (std::size_t i = 0; i < program.values.size(); ++i) plan(static_cast<int>(i));
        for (const auto& [to, from] : program.copies) plan_copy(to, from);
        for (std::size_t i = 0; i + 1 < tasks_.size(); ++i) tasks_[i].wait = !(tasks_[i].is_small && tasks_[i + 1].is_small);
        scratch_ = allocate(scratch_size_ * sizeof(T));
        for (int i = 0; i < pool->size(); ++i) tiles_.push_back(allocate(2 * kTile * sizeof(T)));
    }

    void run(bool timed, std::vector<double>& seconds) override {
        pool->run([&](const Worker& worker) {
            using Clock = std::chrono::steady_clock;
            auto start = Clock::now();
            for (const Task& task : tasks_) {
                if (!task.is_small)
                    task.work(worker);
                else if (worker.index == 0)
                    task.work(Worker{0, 1, nullptr});
                if (task.wait) worker.wait();
                if (timed && worker.index == 0) {
                    const auto now = Clock::now();
                    seconds[task.value] += std::chrono::duration<double>(now - start).count();
                    start = now;
                }
            }
        });
    }

private:
    struct Instruction {
        Elementwise operation;
        int out;
        Operand x, y;
        Scalar c;
    };
    struct Task {
        int value;  // the value that it computes, the first of several
        bool is_small;
        std::function<void(const Worker&)> work;
        bool wait = true;
    };
    // Operations on elements of matrices of one size, which go through a tile one after the other.
    struct Group {
        Index rows, columns;
        std::vector<Instruction> instructions;
        std::vector<int> kept;  // buffers that must not change: those that the product before it reads
    };

    // -- planning -------------------------------------------------------------------------------------------
    void plan(int i) {
        const Value& v = program.values[i];
        if (v.operation == "input" || v.operation == "number" || v.buffer < 0) return;
        if (v.shape.empty())
            plan_scalar(i);
        else if (const auto found = kElementwise.find(v.operation); found != kElementwise.end())
            plan_elementwise(i, found->second);
        else if (v.operation == "matmul" || v.operation == "product_sum")
            plan_product(i);
        else if (program.values[v.operands.empty() ? i : v.operands[0]].operation == "support")
            plan_sparse(i);
        else
            plan_other(i);
    }

    void add(int value, Index size, std::function<void(const Worker&)> work) {
        tasks_.push_back({value, size < kSmall, std::move(work)});
        group_ = nullptr;
    }

    void plan_elementwise(int i, Elementwise operation) {
        const Value& v = program.values[i];
        std::vector<Operand> matrices;
        Scalar c;
        for (int k : v.operands) {
            if (program.values[k].shape.empty())
                c = scalar(k);
            else
                matrices.push_back(operand(k));
        }
        append(i, v.shape, {operation, v.buffer, matrices[0], matrices.back(), c});
    }

    void plan_copy(int to, int from) {
        const Shape& shape = program.buffers[to].shape;
        if (shape.empty()) {
            add(0, 1, [=, this](const Worker&) { write(to, read(Scalar{0, from})); });
        } else {
            const Operand x = direct(from);
            append(static_cast<int>(program.values.size()) - 1, shape, {Elementwise::copy, to, x, x, {}});
        }
    }

    // Adds an instruction to the group before it where it may, or to a new one.
    void append(int value, const Shape& shape, Instruction instruction) {
        const Operand x = instruction.x;
        if (instruction.operation == Elementwise::copy && x.row_stride == 1 && x.column_stride > 1) {  // a transpose
            add(value, shape[0] * shape[1], [=, this](const Worker& worker) {
                constexpr Index block = 64 / sizeof(T);
                const Index blocks = (shape[0] + block - 1) / block;
                kernels_.transpose(data(instruction.out), strides[instruction.out], view(x, shape[0], shape[1]).transposed(),
                                   worker.begin(blocks) * block, std::min(shape[0], worker.end(blocks) * block));
            });
            return;
        }
        const auto is_row = [](const Operand& x) { return x.buffer < 0 || x.column_stride <= 1; };
        const bool is_plain = is_row(instruction.x) && is_row(instruction.y);
        bool joins = group_ && is_plain && group_->rows == shape[0] && group_->columns == shape[1];
        if (joins)
            for (int buffer : group_->kept) joins = joins && buffer != instruction.out;
        if (joins) {
            group_->instructions.push_back(instruction);
            return;
        }
        auto group = std::make_shared<Group>(Group{shape[0], shape[1], {instruction}, {}});
        add(value, shape[0] * shape[1], [this, group](const Worker& worker) { run_group(*group, worker); });
        group_ = is_plain ? group : nullptr;
    }

    void plan_product(int i) {
        const Value& v = program.values[i];
        const auto& x = v.operands;
        const bool has_sum = v.operation == "product_sum";
        const Operand A = operand(x[has_sum ? 3 : 0]), B = operand(x[has_sum ? 4 : 1]);
        Operand S = has_sum ? operand(x[1]) : Operand{};
        const Scalar beta = has_sum ? scalar(x[0]) : Scalar{0}, alpha = has_sum ? scalar(x[2]) : Scalar{1};
        const Index m = v.shape[0], n = v.shape[1], k = program.values[x[has_sum ? 3 : 0]].shape[1];
        if (!has_sum || S.column_stride != 1) {  // start with C itself
            const Operand C = direct(v.buffer);
            if (has_sum) append(i, v.shape, {Elementwise::copy, v.buffer, S, S, {}});
            S = C;
        }
        scratch_size_ = std::max(scratch_size_, kernels_.scratch_size(m, n, k, pool->size()));
        auto group = std::make_shared<Group>(Group{m, n, {}, {A.buffer, B.buffer}});
        const int out = v.buffer;
        add(i, m * n * k / 64, [=, this](const Worker& worker) {
            const Product<T> P{view(A, m, k), view(B, k, n), {data(out), m, n, strides[out], 1}, view(S, m, n),
                               static_cast<T>(read(alpha)), static_cast<T>(read(beta))};
            Epilogue epilogue;
            if (!group->instructions.empty())
                epilogue = [&](const Tile& tile) { run_tile(*group, tile, worker.index); };
            kernels_.product(P, epilogue, static_cast<T*>(scratch_.get()), worker);
        });
        group_ = group;
    }

    // Operands of sparse products are whole matrices, not views.
    int whole(int k) const {
        const Value& v = program.values[k];
        if (v.buffer < 0) throw std::invalid_argument("value " + std::to_string(k) + ": a sparse product reads no views");
        return v.buffer;
    }

    // Their dense operands, and their results, have padded rows: they are in memory of our own.
    int padded_matrix(int k) const {
        const int buffer = whole(k);
        if (strides[buffer] != padded<T>(program.buffers[buffer].shape[1]))
            throw std::invalid_argument("value " + std::to_string(k) + ": a sparse product reads copies of inputs");
        return buffer;
    }

    void plan_sparse(int i) {
        const Value& v = program.values[i];
        const std::string& name = program.values[v.operands[0]].name;
        const int out = v.buffer;
        Support& S = supports[name];
        if (v.operation == "uniform_on") {
            const Scalar seed = scalar(v.operands[1]), count = scalar(v.operands[2]);
            const Index columns = program.values[v.operands[0]].shape[1];
            add(i, v.shape[1], [=, this, &S](const Worker& worker) {
                const std::uint32_t key = hash_key(seed, count);
                const SparseIndex& W = S.by_rows;
                for (Index r = W.begin(worker); r < W.end(worker); ++r)
                    for (std::int64_t p = W.starts[r]; p < W.starts[r + 1]; ++p) {
                        const auto position = static_cast<std::uint32_t>(r * columns + W.columns[p]);
                        data(out)[p] = hashed<T>(position, key);
                    }
            });
            return;
        }
        const int last = padded_matrix(v.operands.back());
        const Index n = program.buffers[last].shape[1];
        if (v.operation == "sparse_product" || v.operation == "sparse_transposed_product") {
            const int w = whole(v.operands[1]);
            padded_matrix(i);
            const bool is_transposed = v.operation != "sparse_product";
            const Index rows = v.shape[0], step = std::max<Index>(1, kTile / std::min(n, kTile));
            auto group = std::make_shared<Group>(Group{rows, n, {}, {w, last}});
            add(i, kSmall, [=, this, &S](const Worker& worker) {
                const SparseIndex& W = is_transposed ? S.by_columns : S.by_rows;
                const bool is_plain = group->instructions.empty();
                for (Index r = W.begin(worker), end = W.end(worker); r < end;) {
                    const Index next = is_plain ? end : std::min(end, r + step);
                    kernels_.sparse_product(data(out), W, data(w), data(last), n, strides[last], r, next);
                    if (!is_plain) run_rows(*group, r, next, worker.index);
                    r = next;
                }
            });
            group_ = group;
            return;
        }
        const bool is_sum = v.operation == "sampled_sum";
        const int A = padded_matrix(v.operands[v.operands.size() - 2]), C = is_sum ? whole(v.operands[2]) : out;
        const Scalar beta = is_sum ? scalar(v.operands[1]) : Scalar{0}, alpha = is_sum ? scalar(v.operands[3]) : Scalar{1};
        add(i, kSmall, [=, this, &S](const Worker& worker) {
            const SparseIndex& W = S.by_rows;
            kernels_.sampled_product(data(out), static_cast<T>(read(beta)), data(C), static_cast<T>(read(alpha)), data(A),
                                     data(last), n, strides[last], W, W.begin(worker), W.end(worker));
        });
    }

    void plan_scalar(int i) {
        const Value& v = program.values[i];
        const int out = v.buffer;
        if (v.operation == "elements_sum") {
            const Operand x = operand(v.operands[0]);
            const Shape shape = program.values[v.operands[0]].shape;
            add(i, 1, [=, this](const Worker&) {
                const View<const T> X = view(x, shape[0], shape[1]);
                double sum = 0;
                for (Index r = 0; r < X.rows; ++r)
                    for (Index c = 0; c < X.columns; ++c) sum += X(r, c);
                write(out, sum);
            });
            return;
        }
        const Elementwise operation = kElementwise.at(v.operation);
        std::vector<Scalar> x;
        for (int k : v.operands) x.push_back(scalar(k));
        add(i, 1, [=, this](const Worker&) { write(out, compute(operation, x)); });
    }

    // An operation on scalars, in the order of the operands of the table.
    double compute(Elementwise operation, const std::vector<Scalar>& x) const {
        std::vector<double> v;
        for (const Scalar& scalar : x) v.push_back(read(scalar));
        switch (operation) {
            case Elementwise::add: return v[0] + v[1];
            case Elementwise::subtract: return v[0] - v[1];
            case Elementwise::hadamard:
            case Elementwise::scale: return v[0] * v[1];
            case Elementwise::divide: return v[0] / v[1];
            case Elementwise::power: return std::pow(v[0], v[1]);
            case Elementwise::gate: return v[1] >= 0 ? v[0] : 0;
            case Elementwise::add_scaled: return v[0] + v[1] * v[2];
            case Elementwise::negative: return -v[0];
            case Elementwise::copy: return v[0];
            case Elementwise::exp: return std::exp(v[0]);
            case Elementwise::log: return std::log(v[0]);
            case Elementwise::log1p: return std::log1p(v[0]);
            case Elementwise::reciprocal: return 1 / v[0];
            case Elementwise::sqrt: return std::sqrt(v[0]);
            case Elementwise::tanh: return std::tanh(v[0]);
            case Elementwise::erf: return std::erf(v[0]);
            case Elementwise::step: return v[0] >= 0 ? 1 : 0;
        }
        return 0;
    }

    void plan_other(int i) {
        const Value& v = program.values[i];
        const std::string& name = v.operation;
        const int out = v.buffer;
        const Index rows = v.shape[0], columns = v.shape[1];
        if (name == "uniform") {
            const Scalar seed = scalar(v.operands[0]), count = scalar(v.operands[1]);
            add(i, rows * columns, [=, this](const Worker& worker) {
                const std::uint32_t key = hash_key(seed, count);
                const Index first = worker.begin(rows), last = worker.end(rows);
                kernels_.uniform(data(out) + first * strides[out], strides[out], key, static_cast<std::uint32_t>(first * columns), columns,
                                 last - first, columns);
            });
            return;
        }
        if (name == "identity") {
            add(i, 1, [=, this](const Worker&) {
                for (Index r = 0; r < rows; ++r)
                    for (Index c = 0; c < columns; ++c) data(out)[r * strides[out] + c] = r == c;
            });
            return;
        }
        const Operand x = operand(v.operands[0]);
        const Shape s = program.values[v.operands[0]].shape;
        if (name == "diag" || name == "Diag") {
            add(i, 1, [=, this](const Worker&) {
                const View<const T> X = view(x, s[0], s[1]);
                for (Index r = 0; r < rows; ++r)
                    for (Index c = 0; c < columns; ++c)
                        data(out)[r * strides[out] + c] = name == "diag" ? X(r, r) : r == c ? (s[0] == 1 ? X(0, r) : X(r, 0)) : T(0);
            });
            return;
        }
        if (name == "columns_sum" || name == "columns_max") {
            const auto reduce = name == "columns_sum" ? kernels_.columns_sum : kernels_.columns_max;
            add(i, s[0] * s[1], [=, this](const Worker& worker) {
                reduce(data(out), view(x, s[0], s[1]), worker.begin(columns), worker.end(columns));
            });
        } else {
            const auto reduce = name == "rows_sum" ? kernels_.rows_sum : kernels_.rows_max;
            add(i, s[0] * s[1], [=, this](const Worker& worker) {
                reduce(data(out), strides[out], view(x, s[0], s[1]), worker.begin(rows), worker.end(rows));
            });
        }
    }

    // -- operands -------------------------------------------------------------------------------------------
    Scalar scalar(int k) const {
        const Value& v = program.values[k];
        return v.operation == "number" ? Scalar{v.number, -1} : Scalar{0, v.buffer};
    }

    Operand direct(int buffer) const { return {buffer, strides[buffer], 1, {}}; }

    Operand operand(int k) const {
        const Value& v = program.values[k];
        if (v.operation == "full") return {-1, 0, 0, scalar(v.operands[0])};
        if (v.buffer >= 0) return direct(v.buffer);
        Operand x = operand(v.operands[0]);
        if (v.operation == "transpose") std::swap(x.row_stride, x.column_stride);
        if (v.operation == "row_repeat") x.row_stride = 0;
        if (v.operation == "column_repeat") x.column_stride = 0;
        return x;
    }

    // What the numbers of `uniform` depend on, but for their positions.
    std::uint32_t hash_key(const Scalar& seed, const Scalar& count) const {
        const auto whole_number = [this](const Scalar& x) { return static_cast<std::uint32_t>(std::int64_t(read(x))); };
        return mix(mix(whole_number(count)) ^ whole_number(seed));
    }

    T* data(int buffer) const { return static_cast<T*>(pointers[buffer]); }

    // What an operand is at present; a repeated number lives as long as the view.
    View<const T> view(const Operand& x, Index rows, Index columns) const {
        if (x.buffer >= 0) return {data(x.buffer), rows, columns, x.row_stride, x.column_stride};
        static thread_local T numbers[8];
        static thread_local int next = 0;
        next = (next + 1) % 8;
        numbers[next] = static_cast<T>(read(x.scalar));
        return {&numbers[next], rows, columns, 0, 0};
    }

    // -- running --------------------------------------------------------------------------------------------
    void run_group(const Group& group, const Worker& worker) const {
        const Index columns = std::min(group.columns, kTile);
        const Index rows = std::max<Index>(1, kTile / columns);
        const Index down = (group.rows + rows - 1) / rows, across = (group.columns + columns - 1) / columns;
        for (Index t = worker.begin(down * across); t < worker.end(down * across); ++t) {
            const Index row = t / across * rows, column = t % across * columns;
            run_tile(group, {row, column, std::min(rows, group.rows - row), std::min(columns, group.columns - column)},
                     worker.index);
        }
    }

    void run_rows(const Group& group, Index first, Index last, int thread) const {
        for (Index column = 0; column < group.columns; column += kTile)
            run_tile(group, {first, column, last - first, std::min(kTile, group.columns - column)}, thread);
    }

    void run_tile(const Group& group, const Tile& tile, int thread) const {
        T* spare = static_cast<T*>(tiles_[thread].get());
        for (const Instruction& instruction : group.instructions) {
            Index x_stride, y_stride;
            const T* x = rows_of(instruction.x, group, tile, spare, x_stride);
            const T* y = rows_of(instruction.y, group, tile, spare + kTile, y_stride);
            const Index out_stride = strides[instruction.out];
            T* out = data(instruction.out) + tile.row * out_stride + tile.column;
            kernels_.elementwise[static_cast<int>(instruction.operation)](out, out_stride, x, x_stride, y, y_stride,
                                                                          static_cast<T>(read(instruction.c)), tile.rows,
                                                                          tile.columns);
        }
    }

    // The tile of an operand with contiguous rows; `spare` is used where they are not.
    const T* rows_of(const Operand& x, const Group& group, const Tile& tile, T* spare, Index& stride) const {
        const View<const T> X = view(x, group.rows, group.columns);
        stride = X.row_stride;
        if (X.column_stride == 1 || tile.columns == 1) return &X(tile.row, tile.column);
        const bool is_constant = X.row_stride == 0 && X.column_stride == 0;
        stride = is_constant ? 0 : tile.columns;
        for (Index i = 0; i < (is_constant ? 1 : tile.rows); ++i) {
            T* row = spare + i * tile.columns;
            if (X.column_stride == 0)
                std::fill_n(row, tile.columns, X(tile.row + i, 0));
            else
                for (Index j = 0; j < tile.columns; ++j) row[j] = X(tile.row + i, tile.column + j);
        }
        return spare;
    }

    const Kernels<T>& kernels_;
    std::vector<Task> tasks_;
    std::shared_ptr<Group> group_;  // the group that the next instruction may join
    Index scratch_size_ = 1;
    Memory scratch_;
    std::vector<Memory> tiles_;  // two a thread
};

}  // namespace

Executor::Executor(Program program, std::shared_ptr<ThreadPool> pool, const std::string& instruction_set)
    : seconds(program.values.size()) {
    std::string dtype;
    for (const Value& v : program.values) {
        if (v.shape.empty() || v.operation == "support") continue;
        if (dtype.empty()) dtype = v.dtype;
        if (v.dtype != dtype) throw std::invalid_argument("expected matrices of one dtype");
    }
    if (dtype == "float32")
        implementation_ = std::make_unique<Typed<float>>(std::move(program), std::move(pool), instruction_set);
    else if (dtype == "float64")
        implementation_ = std::make_unique<Typed<double>>(std::move(program), std::move(pool), instruction_set);
    else
        throw std::invalid_argument("dtype: expected float32 or float64, found " + dtype);
}

Executor::~Executor() = default;

const Program& Executor::program() const { return implementation_->program; }

void Executor::bind(const std::string& name, void* data) {
    implementation_->pointers[implementation_->program.buffer(name)] = data;
}

void Executor::bind_support(const std::string& name, const Support& support) {
    const auto found = implementation_->supports.find(name);
    if (found == implementation_->supports.end()) throw std::invalid_argument("the program has no support '" + name + "'");
    found->second = support;
}

void Executor::run() {
    for (const auto& [name, support] : implementation_->supports)
        if (!support.by_rows.starts) throw std::invalid_argument("the support '" + name + "' is not bound");
    for (std::size_t i = 0; i < implementation_->pointers.size(); ++i)
        if (!implementation_->pointers[i])
            throw std::invalid_argument("the input '" + implementation_->program.buffers[i].name + "' is not bound");
    implementation_->run(timed, seconds);
}

}  // namespace matgrad
