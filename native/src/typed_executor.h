// A program as a list of tasks on buffers, for matrices with elements of type T.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "matgrad/program.h"

namespace matgrad {

constexpr Index kTile = 4096;   // elements that are processed at once: they fit the L1 cache
constexpr Index kSmall = 8192;  // elements below which one thread is faster than several
constexpr Index kChunk = 16384;  // stored elements per thread whose sums are added up at once
constexpr Index kFew = 128;      // elements that are added up one after another
constexpr Index kPiece = 128;    // examples that are multiplied at once
constexpr int kPieces = 32;      // of examples whose sums are added up one after another

constexpr std::align_val_t kAlignment{kCacheLine};

struct Free {
    void operator()(void* p) const { ::operator delete(p, kAlignment); }
};
using Memory = std::unique_ptr<void, Free>;

// Memory in large pages where the system has them: rows of large matrices are read in random order.
Memory allocate(std::size_t bytes);

// A scalar: a number, or the content of a buffer.
struct Scalar {
    Number number = 0.0;
    int buffer = -1;
};

// A matrix in a buffer, possibly transposed or repeated, or a repeated scalar.
struct Operand {
    int buffer = -1;
    Index row_stride = 0, column_stride = 0;
    Scalar scalar;
};

// out = f(x, y, c), element by element.
struct Instruction {
    Op operation;
    int out;
    Operand x, y;
    Scalar c;
};

// C = β·S + α·A B, an m×n matrix; k is the number of columns of A.
struct Factors {
    Operand A, B, S;
    Scalar alpha, beta;
    Index m, n, k;
};

// A Bᵀ at the stored elements of W, for the buffers A and B.
struct Sampled {
    const SparseIndex* W;
    int A, B;
};

// Operations on the elements of matrices of the same size; all of them are applied to a tile before the next one.
struct Group {
    Index rows, columns;
    bool by_examples;
    std::vector<Instruction> instructions;
    std::vector<int> read_by_product = {};  // buffers that must not change: the product before the group reads them
};

// Who does a task: one thread; all threads, each a part of it; or all teams of threads, each for its own examples.
enum class Split { alone, parts, examples };

// Who waits for whom after a task.
enum class Wait { none, team, all };

// How a task with Split::examples goes through a buffer: each example is a row of it, a column of it, or needs all of it.
enum class Axis { rows, columns, all };

struct Access {
    int buffer;
    Axis axis;
    bool is_written;

    auto operator<=>(const Access&) const = default;
};

struct Task {
    int value;  // the value that it computes, or the first of several
    Split split;
    std::function<void(const Worker&)> work;
    std::vector<Access> accesses = {};    // of a task that is split by examples, without those of its group
    std::shared_ptr<Group> group = {};    // operations that follow on each of its tiles
    Wait wait = Wait::all;
};

struct Executor::Implementation {
    Implementation(Program p, std::shared_ptr<ThreadPool> threads, Index line, Index lanes);
    virtual ~Implementation() = default;
    virtual void run(bool timed, std::vector<double>& seconds) = 0;

    Memory reserve(std::size_t bytes);  // throws std::invalid_argument if the program asks for too much
    // Memory for the buffers of the program that are not inputs, and for one more matrix.
    void allocate_buffers();
    int add_buffer(const Shape& shape, const std::string& dtype);

    bool is_of_weights(const Value& v) const;  // whether it is a product with sparse weights, not with sparse examples
    void bind_sparse_rows(const Examples& examples, const std::vector<Index>& rows);
    void index_columns(const Worker& worker);
    void bind_rows(int input, const void* data, Index rows, bool are_consecutive, const std::vector<Index>& indices);
    void check_constant(int input) const;  // throws if the program changes it

    // A scalar as a number of type N, and a number as the content of a buffer: whole numbers stay exact.
    template <class N>
    N read(const Scalar& scalar) const;
    template <class N>
    void write(int buffer, N x) const;

    Program program;
    std::shared_ptr<ThreadPool> pool;
    const std::function<void(int)>* collective = nullptr;  // the executor's
    const Index line, lanes;      // elements per cache line and per vector of the kernels
    std::vector<void*> pointers;  // of the buffers
    std::vector<Index> strides;   // the distances between their rows
    std::vector<bool> is_padded;  // whether their rows end with zeros
    std::vector<bool> is_split;   // whether every strip of columns, which are examples, has its own block of memory
    std::map<std::string, Support> supports;
    Index reserved = 0;  // bytes so far
    std::vector<Memory> owned;
    std::map<int, Memory> gathered;  // copies of rows, for inputs that are examples
    std::map<int, bool> is_only_transposed;  // whether the rows of an input are transposed from where they are, without a copy:
    std::map<int, std::vector<Index>> chosen_rows;  // those with these indices, or all of them if it is empty

    // The batch of sparse examples: its elements by rows and, if the program reads them so, by columns.
    struct {
        std::vector<std::int64_t> starts, column_starts;
        std::vector<std::int32_t> columns, rows, positions;
        std::vector<std::byte> values;
    } batch;

    // The batch size of products with sparse weights, or 0 if there are none: every team of threads takes its own examples, strip by strip.
    Index examples = 0;
    int strips = 0;
    std::vector<std::unique_ptr<Barrier>> teams;
    Index first_example(int strip) const;
    Index padded_stride(Index n) const;
    int team(int thread) const { return static_cast<int>(((thread + 1) * teams.size() - 1) / pool->size()); }
    int team_count() const;
    bool reads_only_transpose(int input) const;
    Worker member(const Worker& worker) const;  // the same thread within its team
};

template <class T>
class TypedExecutor : public Executor::Implementation {
public:
    TypedExecutor(Program p, std::shared_ptr<ThreadPool> threads, const std::string& instruction_set);
    void run(bool timed, std::vector<double>& seconds) override;

private:
    // planning.cpp, products.cpp: the tasks of each value
    void plan(int value);
    void plan_scalar(int value);
    void plan_elementwise(int value);
    void plan_copy(int to, int from);
    void plan_product(int value);
    bool plan_product_by_examples(int value, const Factors& factors);
    void plan_sparse_product(int value);
    void plan_sampled_product(int value);
    void plan_sparse_sum(int value);
    void plan_dense(int value);
    void plan_collective(int value);
    void plan_other(int value);
    void plan_reduction(int value);
    void plan_waits();

    Task& add(int value, Split split, std::function<void(const Worker&)> work);
    Task& add(int value, Index size, std::function<void(const Worker&)> work) {
        return add(value, size < kSmall ? Split::alone : Split::parts, std::move(work));
    }
    void add_scalar(int value, int out, Op operation, const std::vector<Scalar>& x);
    void append(int value, const Shape& shape, Instruction instruction);
    void transpose(int value, const Shape& shape, int out, const Operand& x);
    std::vector<Access> accesses(const Task& task) const;
    Axis axis(const Shape& shape, const Operand& x) const;
    bool has_examples(const Shape& shape) const;

    Scalar scalar(int value) const;
    Operand direct(int buffer) const { return {buffer, strides[buffer], 1, {}}; }
    Operand operand(int value) const { return operands_[value]; }
    Operand place(int value) const;
    Operand unsplit(int value, Operand x);
    int unsplit_buffer(int buffer);
    void copy(int value, int to, int from);
    int stored_buffer(int value) const;
    int padded_buffer(int value) const;

    // execution.cpp: what the tasks do
    void run_tasks(const Worker& worker, std::vector<double>* seconds) const;
    double compute(Op operation, const std::vector<Scalar>& x) const;
    std::int64_t count(Op operation, const std::vector<Scalar>& x) const;
    static double elements_sum(View<const T> X);
    std::uint32_t hash_key(const Scalar& seed, const Scalar& count) const;
    void run_group(const Group& group, const Worker& worker) const;
    Tile share(const Group& group, Index begin, Index end, const Worker& member) const;
    void run_region(const Group& group, const Tile& region, int thread, int strip) const;
    void run_tile(const Group& group, const Tile& tile, int thread, int strip) const;
    void fetch_tile(const Group& group, const Tile& tile, int known) const;
    View<const T> rows_of(const View<const T>& X, const Tile& tile, T* spare) const;
    void sample(T* out, T beta, const T* C, T alpha, const Sampled& S, int from, int to, Index first, Index last) const;
    void sample_by_examples(int out, T beta, int C, T alpha, const Sampled& S, const Worker& worker) const;
    void sample_by_elements(int out, T beta, int C, T alpha, const Sampled& S, const Worker& worker) const;
    Index chunk_size() const { return kChunk * pool->size() / static_cast<Index>(teams.size()); }
    void sum_by_examples(int out, int x, const Worker& worker) const;

    // Calls f(strip, begin, end, member) for each strip of a worker's team, where [begin, end) are its examples, which the members
    // of the team share.
    template <class F>
    void for_strips(const Worker& worker, F&& f) const {
        const Worker in_team = member(worker);
        const int count = strips / static_cast<int>(teams.size()), first = team(worker.index) * count;
        for (int strip = first; strip < first + count; ++strip) f(strip, first_example(strip), first_example(strip + 1), in_team);
    }

    // The part of [begin, end) that belongs to a worker, in whole cache lines from `begin` on.
    std::pair<Index, Index> whole_lines(Index begin, Index end, const Worker& worker) const {
        const Index lines = (end - begin + line - 1) / line;
        return {begin + worker.begin(lines) * line, std::min(end, begin + worker.end(lines) * line)};
    }
    // Element (i, j) of a buffer is data[i * stride + j]; if the matrix is split, for an example j of the strip.
    T* data(int buffer, int strip = 0) const {
        T* p = static_cast<T*>(pointers[buffer]);
        return is_split[buffer] ? p + strip * program.buffers[buffer].shape[0] * strides[buffer] - first_example(strip) : p;
    }
    // A strip of a matrix that a sparse product reads or writes; all of it if the threads do not take their own examples.
    Padded<T> padded(int buffer, int strip) const {
        return {data(buffer, strip) + (examples ? first_example(strip) : 0), strides[buffer]};
    }
    View<const T> summand(const Factors& factors, int strip) const;
    View<const T> view(const Operand& x, Index rows, Index columns, T& number, int strip = 0) const;

    const Kernels<T>& kernels_;
    std::vector<Operand> operands_;  // where the matrices among the values are
    std::vector<Task> tasks_;
    std::shared_ptr<Group> group_;  // the group that the next instruction may join
    std::map<int, int> unsplit_buffers_;  // by the split buffers whose matrices they hold in one block
    Index scratch_size_ = 1;
    Memory scratch_;  // shared by all threads
    Index thread_scratch_size_ = 2 * kTile;
    std::vector<Memory> thread_scratch_;  // one per thread: two tiles, and more for products
};

}  // namespace matgrad
