// Programs: computations that matgrad has recorded. They are checked when they are read, and run in place.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "matgrad/json.h"
#include "matgrad/kernels.h"
#include "matgrad/limits.h"
#include "matgrad/thread_pool.h"

namespace matgrad {

using Shape = std::vector<Index>;  // {m, n} of a matrix, {} of a scalar, {K, D, nnz} of a support

constexpr const char* kExamples = "X.support";  // the support of sparse examples, which differs from batch to batch

// The names of the operations that a program may contain.
std::vector<std::string> operations();

// Memory for a matrix (two sizes) or a scalar (no sizes). That of an input or an output, and what a collective reads or writes, has a
// name: it is the caller's.
struct Buffer {
    Shape shape;
    std::string dtype, name;
};

// The number of bytes per element; throws std::invalid_argument for a dtype other than float32, float64, int32 and int64.
std::size_t element_size(const std::string& dtype);

// A number of a program; counters are whole, and exact.
using Number = std::variant<double, std::int64_t>;

// The result of an operation on earlier values, kept in `buffer`, which is -1 for views and numbers.
struct Value {
    Op operation = Op::input;
    std::vector<int> operands;
    Shape shape;
    std::string dtype;
    Number number = 0.0;
    int buffer = -1;
    std::string name, equation;
};

// A support: the index of a sparse matrix by rows and by columns, in the caller's memory.
struct Support {
    SparseIndex by_rows, by_columns;
};

struct Program {
    std::vector<Value> values;
    std::vector<Buffer> buffers;
    std::vector<std::pair<int, int>> copies;  // (to, from), at the end
    std::map<std::string, Shape> supports;    // by name
    std::string dtype;                        // of all matrices
    bool has_collectives = false;             // whether it exchanges something with other ranks
    Limits limits;

    // The program that a JSON value describes; throws std::invalid_argument if it is not sound, or asks for too much.
    explicit Program(const Json& description, const Limits& limits = Limits::of_machine());
    int buffer(const std::string& name) const;  // throws std::invalid_argument if there is none
    bool writes(int buffer) const;
    bool has_sparse_examples() const { return supports.count(kExamples) > 0; }

private:
    friend class ProgramReader;
    std::map<std::string, int> named_;  // the buffers that have names
};

// The examples of an epoch, in the caller's memory: rows of X, each with a row of T.
struct Examples {
    const void* X;
    const void* T;
    Index size, targets;                   // rows of X and of T
    const std::int64_t* order = nullptr;   // `size` indices of rows of X; without them, the rows as they are
    const std::int64_t* labels = nullptr;  // the row of T for each row of X; without them, the same row
    const std::int64_t* starts = nullptr;  // of sparse examples: X has the values of the elements starts[i], …, starts[i + 1] - 1
    const std::int32_t* columns = nullptr;  // of row i, and these are their columns
    const void* weights = nullptr;          // the input s of the program, one for each row of X
};

// A program with memory. Inputs are bound to the caller's memory; the program updates some of them in place.
class Executor {
public:
    // The pool may serve several executors, one after the other.
    Executor(Program program, std::shared_ptr<ThreadPool> pool, const std::string& instruction_set = "");
    ~Executor();

    const Program& program() const;
    void bind(const std::string& name, void* data);
    void bind(const std::string& name, const void* data);  // throws std::invalid_argument if the program changes it
    void bind_support(const std::string& name, const Support& support);
    void bind_examples(const Examples& examples);  // the sparse examples of one batch
    void run();
    // Trains on one batch after another: the inputs X and T are rows of the examples, which are sparse if the program says so, and
    // the input eta is the next of `rates`; all three are unbound afterwards. `after_batch` may throw to stop. Throws std::invalid_argument if the program
    // is not a training step, there are too few examples, or an index is out of range.
    void run(const Examples& examples, const void* rates, Index batches, const std::function<void()>& after_batch = [] {});
    Index runs = 0;  // so far

    // What exchanges matrices with other ranks: it is called with the index of every value that is a collective, in the order of
    // the program, by the thread that called run(). The operand is complete then, and the result must be in its buffer at the
    // end, both in the memory that their names are bound to. It may throw to end the run. A program without collectives needs none.
    std::function<void(int)> collective;

    // The seconds that each value has taken so far, counted while `timed` is set; operations fused with a product count as
    // part of it.
    bool timed = false;
    std::vector<double> seconds;

    struct Implementation;

private:
    std::unique_ptr<Implementation> implementation_;
};

}  // namespace matgrad
