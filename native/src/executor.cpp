// Programs with memory: their buffers, and what is bound to them.
#include <cstring>
#include <limits>

#include "matgrad/errors.h"
#include "operations.h"
#include "typed_executor.h"

#if __has_include(<sys/mman.h>)
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace matgrad {

namespace {

constexpr Index kWidest = 8;   // cache lines per row of a strip: with more, a few thousand rows do not fit the L2 cache

constexpr std::size_t kLarge = std::size_t(1) << 22;  // bytes, from which on memory is in large pages

Index rounded_up(Index n, Index multiple) { return (n + multiple - 1) / multiple * multiple; }

}  // namespace

// Not std::aligned_alloc, which Windows lacks.
Memory allocate(std::size_t bytes) {
    Memory memory(::operator new(bytes, kAlignment));
#if defined(MADV_HUGEPAGE)
    const auto start = reinterpret_cast<std::uintptr_t>(memory.get()), page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const std::uintptr_t first = (start + page - 1) / page * page, last = (start + bytes) / page * page;
    if (bytes >= kLarge) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);  // it is well without, too
#endif
    return memory;
}

Executor::Implementation::Implementation(Program p, std::shared_ptr<ThreadPool> threads, Index per_line, Index per_vector)
    : program(std::move(p)), pool(std::move(threads)), line(per_line), lanes(per_vector) {
    for (const Value& v : program.values)
        if (is_of_weights(v)) examples = v.shape[1];
    const int count = team_count();
    for (int i = 0; i < count; ++i)
        teams.push_back(std::make_unique<Barrier>(static_cast<int>(Worker{i, count, nullptr}.part(pool->size())), pool->size()));
    const Index widest = kWidest * line * count;
    strips = static_cast<int>((examples + widest - 1) / widest) * count;
    allocate_buffers();
}

bool Executor::Implementation::is_of_weights(const Value& v) const {
    return is_sparse_product(v.operation) && program.values[v.operands[0]].name != kExamples;
}

// Whether a matrix is an input of several columns of which the program reads nothing but the transpose, to copy it.
bool Executor::Implementation::reads_only_transpose(int input) const {
    const Buffer& buffer = program.buffers[input];
    if (buffer.name.empty() || buffer.shape.size() != 2 || buffer.shape[1] < 2 || program.writes(input)) return false;
    for (const auto& [to, from] : program.copies)
        if (from == input) return false;
    for (const Value& v : program.values)
        for (int k : v.operands) {
            const Value& x = program.values[k];
            if (x.buffer == input && v.operation != Op::transpose) return false;
            const bool is_transpose = x.operation == Op::transpose && program.values[x.operands[0]].buffer == input;
            if (is_transpose && (x.buffer >= 0 || v.operation != Op::copy)) return false;
        }
    return true;
}

// The number of teams with which the slowest one takes the least time, by an estimate in which a cache line of examples times a
// weight takes 1. The more teams there are, the more often weights are read; the larger teams are, the more examples come from
// the caches of other threads, and the wider their strips are, which should fit the L2 cache.
int Executor::Implementation::team_count() const {
    constexpr double kWeight = 3, kLine = 4;  // reading a weight, for a strip, and a line of examples from another cache
    constexpr double kSlowdown = 1.3, kCached = 16384;  // where a strip has more lines than this
    double weights = 0, features = 0, rows = 0;
    for (const Value& v : program.values) {
        if (!is_of_weights(v)) continue;
        const Shape& support = program.values[v.operands[0]].shape;
        weights += static_cast<double>(support[2]), features += static_cast<double>(support[0] + support[1]);
        rows = std::max(rows, static_cast<double>(std::max(support[0], support[1])));
    }
    const Index lines = rounded_up(examples, line) / line;
    const auto cost = [&](int count) {
        double slowest = 0;
        for (int i = 0; i < count; ++i) {
            const Worker team{i, count, nullptr};
            const auto members = static_cast<double>(team.part(pool->size())), own = static_cast<double>(team.part(lines));
            const auto strips = static_cast<double>(rounded_up(team.part(lines), kWidest) / kWidest);
            const double products = weights * (kWeight * strips + own) / members * (rows * own / strips > kCached ? kSlowdown : 1);
            slowest = std::max(slowest, products + (members > 1 ? kLine * features * own : 0));
        }
        return slowest;
    };
    int best = 1;
    double least = cost(best);
    for (int count = 2; count <= std::min<Index>(pool->size(), lines); ++count)
        if (const double time = cost(count); time < least) best = count, least = time;
    return best;
}

// A thread within its team.
Worker Executor::Implementation::member(const Worker& worker) const {
    const int t = team(worker.index);
    const Worker own{t, static_cast<int>(teams.size()), nullptr};
    return {worker.index - static_cast<int>(own.begin(pool->size())), static_cast<int>(own.part(pool->size())), teams[t].get()};
}

// The distance between rows of n elements that are padded with zeros to whole vectors. A short row lies within a cache line;
// longer rows are an odd number of lines apart, so that they do not compete for the same places in a cache.
Index Executor::Implementation::padded_stride(Index n) const {
    if (n > line) return (rounded_up(n, line) / line | 1) * line;
    Index stride = lanes;
    while (stride < n) stride *= 2;
    return stride;
}

// Strips are whole cache lines wide.
Index Executor::Implementation::first_example(int strip) const {
    const Index lines = rounded_up(examples, line) / line;
    return std::min(examples, lines * strip / strips * line);
}

// With padding, second copies and scratch, a program may ask for more than the sum of its buffers.
Memory Executor::Implementation::reserve(std::size_t bytes) {
    reserved = checked_sum(reserved, static_cast<Index>(bytes));
    program.limits.check_memory(reserved, "the program");
    return allocate(bytes);
}

void Executor::Implementation::allocate_buffers() {
    const std::size_t count = program.buffers.size();
    pointers.resize(count), is_padded.resize(count), is_split.resize(count);
    for (const Value& v : program.values) {  // the dense operands and the results of sparse products are padded
        const bool is_product = is_of_weights(v), is_sample = v.operation == Op::sampled_product || v.operation == Op::sampled_sum;
        if (is_product) is_padded[v.buffer] = true;
        for (std::size_t k = v.operands.size() - (is_product ? 1 : is_sample ? 2 : 0); k < v.operands.size(); ++k)
            if (const int buffer = program.values[v.operands[k]].buffer; buffer >= 0) is_padded[buffer] = true;
    }
    for (std::size_t i = 0; i < count; ++i) {
        const Buffer& buffer = program.buffers[i];
        if (!buffer.name.empty()) {
            is_padded[i] = false;
            strides.push_back(buffer.shape.empty() ? 1 : buffer.shape[1]);
            continue;
        }
        const Index rows = buffer.shape.empty() ? 1 : buffer.shape[0];
        Index columns = buffer.shape.empty() ? 1 : buffer.shape[1], blocks = 1;
        if (examples && columns == examples && rows > 1) {
            blocks = strips, columns = 0;
            for (int strip = 0; strip < strips; ++strip)
                columns = std::max(columns, first_example(strip + 1) - first_example(strip));
            is_split[i] = is_padded[i] = true;
        }
        strides.push_back(is_padded[i] ? padded_stride(columns) : columns);
        const std::size_t bytes = element_size(buffer.dtype) * blocks * rows * strides.back();
        owned.push_back(reserve(bytes));
        std::memset(owned.back().get(), 0, bytes);  // the padding of a row stays 0
        pointers[i] = owned.back().get();
    }
}

int Executor::Implementation::add_buffer(const Shape& shape, const std::string& dtype) {
    program.buffers.push_back({shape, dtype, ""});
    strides.push_back(shape[1]);
    is_padded.push_back(false), is_split.push_back(false);
    owned.push_back(reserve(element_size(dtype) * shape[0] * shape[1]));
    pointers.push_back(owned.back().get());
    return static_cast<int>(pointers.size()) - 1;
}

template <class N>
N Executor::Implementation::read(const Scalar& scalar) const {
    if (scalar.buffer < 0) return std::visit([](auto x) { return static_cast<N>(x); }, scalar.number);
    const std::string& dtype = program.buffers[scalar.buffer].dtype;
    const void* p = pointers[scalar.buffer];
    if (dtype == "float32") return static_cast<N>(*static_cast<const float*>(p));
    if (dtype == "float64") return static_cast<N>(*static_cast<const double*>(p));
    if (dtype == "int32") return static_cast<N>(*static_cast<const std::int32_t*>(p));
    return static_cast<N>(*static_cast<const std::int64_t*>(p));
}
template float Executor::Implementation::read<float>(const Scalar&) const;
template double Executor::Implementation::read<double>(const Scalar&) const;
template std::int64_t Executor::Implementation::read<std::int64_t>(const Scalar&) const;

template <class N>
void Executor::Implementation::write(int buffer, N x) const {
    const std::string& dtype = program.buffers[buffer].dtype;
    void* p = pointers[buffer];
    if (dtype == "float32") *static_cast<float*>(p) = static_cast<float>(x);
    if (dtype == "float64") *static_cast<double*>(p) = static_cast<double>(x);
    if (dtype == "int32") *static_cast<std::int32_t*>(p) = static_cast<std::int32_t>(x);
    if (dtype == "int64") *static_cast<std::int64_t*>(p) = static_cast<std::int64_t>(x);
}
template void Executor::Implementation::write<double>(int, double) const;
template void Executor::Implementation::write<std::int64_t>(int, std::int64_t) const;

void Executor::Implementation::check_constant(int input) const {
    if (program.writes(input)) refuse("the program changes the input " + readable(program.buffers[input].name));
}

// Binds an input to the rows of `data` with these indices: in place if they are consecutive or the program only transposes them,
// else to copies of them.
void Executor::Implementation::bind_rows(int input, const void* data, Index rows, bool are_consecutive, const std::vector<Index>& indices) {
    const Buffer& buffer = program.buffers[input];
    for (Index i : indices)
        if (i < 0 || i >= rows) refuse(buffer.name + " has no row " + std::to_string(i));
    const Index N = buffer.shape[0], bytes = element_size(buffer.dtype) * buffer.shape[1];
    const auto row = [&](Index i) { return static_cast<std::byte*>(const_cast<void*>(data)) + indices[i] * bytes; };
    chosen_rows[input].clear();
    if (are_consecutive) {
        pointers[input] = row(0);
        return;
    }
    const auto [only, is_new] = is_only_transposed.try_emplace(input, false);
    if (is_new) only->second = reads_only_transpose(input);
    if (only->second) {
        pointers[input] = const_cast<void*>(data);
        chosen_rows[input] = indices;
        return;
    }
    Memory& copies = gathered[input];
    if (!copies) copies = reserve(N * bytes);
    pointers[input] = copies.get();
    const auto gather = [&](const Worker& worker) {
        for (Index i = worker.begin(N); i < worker.end(N); ++i)
            std::memcpy(static_cast<std::byte*>(copies.get()) + i * bytes, row(i), bytes);
    };
    if (N * buffer.shape[1] < kSmall)
        gather(Worker{0, 1, nullptr});
    else
        pool->run(gather);
}

namespace {

// Refuses sparse examples with a row that ends before it begins, or with an element outside their D columns.
void check_rows(const Examples& examples, Index D) {
    const std::int64_t* starts = examples.starts;
    for (Index i = 0; i < examples.size; ++i)
        if (starts[i + 1] < starts[i]) refuse("X: row " + std::to_string(i) + " ends before it begins");
    for (std::int64_t p = starts[0]; p < starts[examples.size]; ++p)
        if (examples.columns[p] < 0 || examples.columns[p] >= D)
            refuse("X: expected columns from 0 to " + std::to_string(D - 1) + ", found " + std::to_string(examples.columns[p]));
}

}  // namespace

// Sorts the elements of the batch by columns, by counting; every worker takes some of the columns.
void Executor::Implementation::index_columns(const Worker& worker) {
    const Index D = static_cast<Index>(batch.column_starts.size()) - 1, first = worker.begin(D), last = worker.end(D);
    std::int64_t before = 0;  // elements in the columns of the workers before
    for (std::int32_t column : batch.columns) {
        before += column < first;
        if (column >= first && column < last) ++batch.column_starts[column];
    }
    for (Index column = first; column < last; ++column)  // the end of each column for now
        before += batch.column_starts[column], batch.column_starts[column] = before;
    if (last == D) batch.column_starts[D] = before;
    for (Index i = static_cast<Index>(batch.starts.size()) - 2; i >= 0; --i)
        for (std::int64_t p = batch.starts[i + 1] - 1; p >= batch.starts[i]; --p) {
            const std::int32_t column = batch.columns[p];
            if (column < first || column >= last) continue;
            const std::int64_t place = --batch.column_starts[column];
            batch.rows[place] = static_cast<std::int32_t>(i), batch.positions[place] = static_cast<std::int32_t>(p);
        }
}

// Makes the rows of the examples with these indices the batch, in linear time. Their elements have been checked.
void Executor::Implementation::bind_sparse_rows(const Examples& examples, const std::vector<Index>& rows) {
    const Index D = program.supports.at(kExamples)[1], size = element_size(program.dtype);
    std::int64_t count = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        if (rows[i] < 0 || rows[i] >= examples.size) refuse("X has no row " + std::to_string(rows[i]));
        count += examples.starts[rows[i] + 1] - examples.starts[rows[i]];
        if (count > std::numeric_limits<std::int32_t>::max()) refuse("X: a batch has too many elements");
    }
    program.limits.check_memory(checked_sum(reserved, checked_product({count, 12 + size}) + 8 * (D + 1)), "a batch of X");
    const Index N = static_cast<Index>(rows.size());
    batch.starts.assign(1, 0);
    for (Index row : rows) batch.starts.push_back(batch.starts.back() + examples.starts[row + 1] - examples.starts[row]);
    batch.values.reserve(size);  // so that it has an address, also if no example has an element
    batch.columns.resize(count), batch.values.resize(count * size);
    batch.column_starts.assign(D + 1, 0), batch.rows.resize(count), batch.positions.resize(count);
    const auto gather = [&](const Worker& worker) {
        for (Index i = worker.begin(N); i < worker.end(N); ++i) {
            const std::int64_t from = examples.starts[rows[i]], to = batch.starts[i], n = batch.starts[i + 1] - to;
            std::copy_n(examples.columns + from, n, batch.columns.begin() + to);
            std::copy_n(static_cast<const std::byte*>(examples.X) + from * size, n * size, batch.values.begin() + to * size);
        }
        worker.wait();
        index_columns(worker);
    };
    if (count < kSmall)
        gather(Worker{0, 1, nullptr});
    else
        pool->run(gather);
    supports[kExamples] = {{batch.starts.data(), batch.columns.data(), nullptr, N},
                           {batch.column_starts.data(), batch.rows.data(), batch.positions.data(), D}};
    pointers[program.buffer("X")] = batch.values.data();
}

Executor::Executor(Program program, std::shared_ptr<ThreadPool> pool, const std::string& instruction_set)
    : seconds(program.values.size()) {
    if (program.dtype == "float32")
        implementation_ = std::make_unique<TypedExecutor<float>>(std::move(program), std::move(pool), instruction_set);
    else
        implementation_ = std::make_unique<TypedExecutor<double>>(std::move(program), std::move(pool), instruction_set);
    implementation_->collective = &collective;
}

Executor::~Executor() = default;

const Program& Executor::program() const { return implementation_->program; }

void Executor::bind(const std::string& name, void* data) {
    const int input = implementation_->program.buffer(name);
    if (name == "X" && implementation_->program.has_sparse_examples()) refuse("X: expected sparse examples");
    implementation_->pointers[input] = data;
    implementation_->chosen_rows[input].clear();
}

void Executor::bind(const std::string& name, const void* data) {
    implementation_->check_constant(implementation_->program.buffer(name));
    bind(name, const_cast<void*>(data));
}

void Executor::bind_support(const std::string& name, const Support& support) {
    const auto& sizes = implementation_->program.supports;
    const auto found = sizes.find(name);
    if (found == sizes.end()) refuse("the program has no support " + readable(name));
    if (name == kExamples) refuse("X.support: expected sparse examples, with their values");
    const SparseIndex &W = support.by_rows, &by_columns = support.by_columns;
    const Index nnz = W.starts[W.rows];
    if (found->second != Shape{W.rows, by_columns.rows, nnz} || by_columns.starts[by_columns.rows] != nnz)
        refuse("the support " + readable(name) + " has a different size from the program's");
    implementation_->supports[name] = support;
}

void Executor::bind_examples(const Examples& examples) {
    const Program& program = implementation_->program;
    if (!program.has_sparse_examples() || !examples.starts) refuse("X: expected a program and a batch with sparse examples");
    const Shape& shape = program.supports.at(kExamples);
    if (examples.size != shape[0]) refuse("X: expected " + std::to_string(shape[0]) + " rows, found " + std::to_string(examples.size));
    check_rows(examples, shape[1]);
    std::vector<Index> rows(examples.size);
    for (Index i = 0; i < examples.size; ++i) rows[i] = i;
    implementation_->bind_sparse_rows(examples, rows);
}

void Executor::run() {
    for (const auto& [name, support] : implementation_->supports)
        if (!support.by_rows.starts) refuse("the support " + readable(name) + " is not bound");
    for (std::size_t i = 0; i < implementation_->pointers.size(); ++i)
        if (!implementation_->pointers[i])
            refuse("the input " + readable(implementation_->program.buffers[i].name) + " is not bound");
    if (implementation_->program.has_collectives && !collective)
        refuse("the program has collectives: expected a function that exchanges matrices with other ranks");
    implementation_->run(timed, seconds);
    ++runs;
}

void Executor::run(const Examples& examples, const void* rates, Index batches, const std::function<void()>& after_batch) {
    Implementation& self = *implementation_;
    const int X = self.program.buffer("X"), T = self.program.buffer("T"), eta = self.program.buffer("eta");
    const bool is_sparse = self.program.has_sparse_examples();
    const Shape &x = is_sparse ? self.program.supports.at(kExamples) : self.program.buffers[X].shape, &t = self.program.buffers[T].shape;
    const Buffer& rate = self.program.buffers[eta];
    if (x.empty() || t.empty() || x[0] != t[0] || !rate.shape.empty() || rate.dtype != self.program.dtype)
        refuse("expected a training step, with inputs X and T that have the same number of rows, and a scalar eta of " +
                                    self.program.dtype);
    const int s = examples.weights ? self.program.buffer("s") : X;  // X if there are no weights
    if (examples.weights && self.program.buffers[s].shape != Shape{x[0], 1}) refuse("s: expected one weight for each row of X");
    for (int input : {X, T, eta, s}) self.check_constant(input);
    if (is_sparse != (examples.starts != nullptr)) refuse(is_sparse ? "X: expected sparse examples" : "X: expected dense examples");
    if (is_sparse) check_rows(examples, x[1]);
    const Index N = x[0], size = element_size(rate.dtype);
    if (batches < 0 || batches > examples.size / N)
        refuse("expected " + std::to_string(batches * N) + " examples, found " + std::to_string(examples.size));
    struct Unbinding {  // also if an exception ends the epoch
        std::vector<void*>& pointers;
        int inputs[4];
        ~Unbinding() {
            for (int input : inputs) pointers[input] = nullptr;
        }
    } at_end{self.pointers, {X, T, eta, s}};
    std::vector<Index> rows(N);
    for (Index batch = 0; batch < batches; ++batch) {
        const Index start = batch * N;
        for (Index i = 0; i < N; ++i) rows[i] = examples.order ? examples.order[start + i] : start + i;
        if (is_sparse)
            self.bind_sparse_rows(examples, rows);
        else
            self.bind_rows(X, examples.X, examples.size, !examples.order, rows);
        if (examples.weights) self.bind_rows(s, examples.weights, examples.size, !examples.order, rows);
        if (examples.labels)
            for (Index& row : rows) row = examples.labels[row];
        self.bind_rows(T, examples.T, examples.targets, !examples.order && !examples.labels, rows);
        self.pointers[eta] = static_cast<std::byte*>(const_cast<void*>(rates)) + batch * size;
        run();
        after_batch();
    }
}

}  // namespace matgrad
