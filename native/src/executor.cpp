// Programs with memory: what the caller binds to them, and how they run.
#include <chrono>

#include "matgrad/errors.h"
#include "planner.h"

namespace matgrad {

struct Executor::Implementation {
    Implementation(Program p, std::shared_ptr<ThreadPool> threads, Index line, Index lanes)
        : program(std::move(p)), pool(std::move(threads)), layout(program, pool->size(), line, lanes), storage(program, layout),
          batch(program, storage, *pool) {}
    virtual ~Implementation() = default;
    virtual void run(bool timed, std::vector<double>& seconds) = 0;

    Program program;
    std::shared_ptr<ThreadPool> pool;
    Layout layout;
    Storage storage;
    Batch batch;
};

namespace {

template <class T>
class TypedExecutor : public Executor::Implementation {
public:
    TypedExecutor(Program p, std::shared_ptr<ThreadPool> threads, const Kernels<T>& kernels,
                  const std::function<void(int)>& collective)
        : Implementation(std::move(p), std::move(threads), kCacheLine / sizeof(T), kernels.lanes),
          calculator_(program, layout, storage, kernels),
          tasks_(Planner<T>(program, layout, storage, batch, calculator_, collective).plan()) {}

    void run(bool timed, std::vector<double>& seconds) override {
        layout.mend();
        pool->run([&](const Worker& worker) {
            try {
                run_tasks(worker, timed && worker.index == 0 ? &seconds : nullptr);
            } catch (...) {
                layout.break_up();
                throw;
            }
        });
    }

private:
    // All threads go through the same list of tasks; the seconds of one are counted if there is a place for them.
    void run_tasks(const Worker& worker, std::vector<double>* seconds) const {
        using Clock = std::chrono::steady_clock;
        const Worker in_team = layout.member(worker);
        auto start = Clock::now();
        for (const Task& task : tasks_) {
            if (task.split != Split::alone)
                task.work(worker);
            else if (worker.index == 0)
                task.work(Worker{0, 1, nullptr});
            if (task.wait == Wait::all) worker.wait();
            if (task.wait == Wait::team) in_team.wait();
            if (seconds) {
                const auto now = Clock::now();
                (*seconds)[task.value] += std::chrono::duration<double>(now - start).count();
                start = now;
            }
        }
    }

    Calculator<T> calculator_;
    const std::vector<Task> tasks_;
};

}  // namespace

Executor::Executor(Program program, std::shared_ptr<ThreadPool> pool, const std::string& instruction_set)
    : seconds(program.values.size()) {
    if (program.dtype == "float32")
        implementation_ = std::make_unique<TypedExecutor<float>>(std::move(program), std::move(pool),
                                                                 kernels<float>(instruction_set), collective);
    else
        implementation_ = std::make_unique<TypedExecutor<double>>(std::move(program), std::move(pool),
                                                                  kernels<double>(instruction_set), collective);
}

Executor::~Executor() = default;

const Program& Executor::program() const { return implementation_->program; }

void Executor::bind(const std::string& name, void* data) {
    const int input = implementation_->program.buffer(name);
    if (name == "X" && implementation_->program.has_sparse_examples()) refuse("X: expected sparse examples");
    implementation_->storage.bind(input, data);
    implementation_->batch.forget(input);
}

void Executor::bind(const std::string& name, const void* data) {
    implementation_->storage.check_constant(implementation_->program.buffer(name));
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
    implementation_->storage.bind_support(name, support);
}

void Executor::bind_examples(const Examples& examples) {
    const Program& program = implementation_->program;
    if (!program.has_sparse_examples() || !examples.starts) refuse("X: expected a program and a batch with sparse examples");
    const Shape& shape = program.supports.at(kExamples);
    if (examples.size != shape[0])
        refuse("X: expected " + std::to_string(shape[0]) + " rows, found " + std::to_string(examples.size));
    check_rows(examples, shape[1]);
    std::vector<Index> rows(examples.size);
    for (Index i = 0; i < examples.size; ++i) rows[i] = i;
    implementation_->batch.bind_sparse(examples, rows);
}

void Executor::run() {
    implementation_->storage.check_bound();
    if (implementation_->program.has_collectives && !collective)
        refuse("the program has collectives: expected a function that exchanges matrices with other ranks");
    implementation_->run(timed, seconds);
    ++runs;
}

void Executor::run(const Examples& examples, const void* rates, Index batches, const std::function<void()>& after_batch) {
    Implementation& self = *implementation_;
    const int X = self.program.buffer("X"), T = self.program.buffer("T"), eta = self.program.buffer("eta");
    const bool is_sparse = self.program.has_sparse_examples();
    const Shape &x = is_sparse ? self.program.supports.at(kExamples) : self.program.buffers[X].shape,
                &t = self.program.buffers[T].shape;
    const Buffer& rate = self.program.buffers[eta];
    if (x.empty() || t.empty() || x[0] != t[0] || !rate.shape.empty() || rate.dtype != self.program.dtype)
        refuse("expected a training step, with inputs X and T that have the same number of rows, and a scalar eta of " +
               self.program.dtype);
    const int s = examples.weights ? self.program.buffer("s") : X;  // X if there are no weights
    if (examples.weights && self.program.buffers[s].shape != Shape{x[0], 1}) refuse("s: expected one weight for each row of X");
    for (int input : {X, T, eta, s}) self.storage.check_constant(input);
    if (is_sparse != (examples.starts != nullptr))
        refuse(is_sparse ? "X: expected sparse examples" : "X: expected dense examples");
    if (is_sparse) check_rows(examples, x[1]);
    const Index N = x[0], size = element_size(rate.dtype);
    if (batches < 0 || batches > examples.size / N)
        refuse("expected " + std::to_string(batches * N) + " examples, found " + std::to_string(examples.size));
    struct Unbinding {  // also if an exception ends the epoch
        Storage& storage;
        int inputs[4];
        ~Unbinding() {
            for (int input : inputs) storage.bind(input, nullptr);
        }
    } at_end{self.storage, {X, T, eta, s}};
    std::vector<Index> rows(N);
    for (Index batch = 0; batch < batches; ++batch) {
        const Index start = batch * N;
        for (Index i = 0; i < N; ++i) rows[i] = examples.order ? examples.order[start + i] : start + i;
        if (is_sparse)
            self.batch.bind_sparse(examples, rows);
        else
            self.batch.bind(X, examples.X, examples.size, !examples.order, rows);
        if (examples.weights) self.batch.bind(s, examples.weights, examples.size, !examples.order, rows);
        if (examples.labels)
            for (Index& row : rows) row = examples.labels[row];
        self.batch.bind(T, examples.T, examples.targets, !examples.order && !examples.labels, rows);
        self.storage.bind(eta, static_cast<const std::byte*>(rates) + batch * size);
        run();
        after_batch();
    }
}

}  // namespace matgrad
