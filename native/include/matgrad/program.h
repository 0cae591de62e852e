// Programs: training steps that matgrad has recorded, checked when they are read, and run in place.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "matgrad/json.h"
#include "matgrad/kernels.h"
#include "matgrad/thread_pool.h"

namespace matgrad {

using Shape = std::vector<Index>;  // {m, n} of a matrix, {} of a scalar, {K, D, nnz} of a support

// The names of the operations that a program may have.
std::vector<std::string> operations();

// Memory for a matrix (two sizes) or a scalar (none); that of an input has a name.
struct Buffer {
    Shape shape;
    std::string dtype, name;
};

// The bytes of an element; throws std::invalid_argument for a dtype other than float32, float64, int32 and int64.
std::size_t element_size(const std::string& dtype);

// The result of an operation on earlier values; `buffer` is where it is kept, -1 for views and numbers.
struct Value {
    std::string operation;
    std::vector<int> operands;
    Shape shape;
    std::string dtype;
    double number = 0;
    int buffer = -1;
    std::string name, equation;
};

// A support: the index of a sparse matrix by rows and by columns, in memory of the caller.
struct Support {
    SparseIndex by_rows, by_columns;
};

struct Program {
    std::vector<Value> values;
    std::vector<Buffer> buffers;
    std::vector<std::pair<int, int>> copies;  // (to, from), at the end

    // The program in a JSON text; throws std::invalid_argument where it is not sound.
    explicit Program(const Json& description);
    int buffer(const std::string& name) const;
    bool writes(int buffer) const;
};

// The examples of an epoch, in memory of the caller: rows of X, and for each its row of T.
struct Examples {
    const void* X;
    const void* T;
    Index size, targets;                   // rows of X and of T
    const std::int64_t* order = nullptr;   // `size` indices of rows of X; as they are where there are none
    const std::int64_t* labels = nullptr;  // the row of T for each row of X; the same one where there are none
};

// A program with memory. Inputs are bound to memory of the caller; the program changes those that it updates.
class Executor {
public:
    // The pool may serve several executors, one after the other.
    Executor(Program program, std::shared_ptr<ThreadPool> pool, const std::string& instruction_set = "");
    ~Executor();

    const Program& program() const;
    void bind(const std::string& name, void* data);
    void bind(const std::string& name, const void* data);  // throws std::invalid_argument where the program changes it
    void bind_support(const std::string& name, const Support& support);
    void run();
    // Trains on one batch after the other: the inputs X and T are rows of the examples, and the input eta is each of `rates`;
    // after that they are not bound. `after_batch` may throw, to stop. Throws std::invalid_argument where the program is no
    // training step, there are not so many examples, or an index is wrong.
    void run(const Examples& examples, const void* rates, Index batches, const std::function<void()>& after_batch = [] {});
    Index runs = 0;  // so far

    // Seconds spent so far by the value, which is summed up where `timed` is set; what is fused with a product counts there.
    bool timed = false;
    std::vector<double> seconds;

    struct Implementation;

private:
    std::unique_ptr<Implementation> implementation_;
};

}  // namespace matgrad
