// A program as a list of tasks on buffers, for matrices of one type.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "matgrad/program.h"

namespace matgrad {

constexpr Index kTile = 4096;   // elements that are worked on at a time: they fit the L1 cache
constexpr Index kSmall = 8192;  // elements below which one thread is faster than several
constexpr Index kChunk = 16384;  // stored elements whose sums are added up at a time

struct Free {
    void operator()(void* p) const { std::free(p); }
};
using Memory = std::unique_ptr<void, Free>;

inline Memory allocate(std::size_t bytes) {
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

// out = f(x, y, c), element by element.
struct Instruction {
    Elementwise operation;
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

// Operations on elements of matrices of one size, which go through a tile one after the other.
struct Group {
    Index rows, columns;
    bool by_examples;
    std::vector<Instruction> instructions;
    std::vector<int> kept = {};  // buffers that must not change: those that the product before it reads
};

// Who does a task: one thread; all threads, each its part; or all threads, each for its examples.
enum class Split { alone, parts, examples };

// How a task with Split::examples goes through a buffer: an example is a row of it, a column, or needs all of it.
enum class Axis { rows, columns, all };

struct Access {
    int buffer;
    Axis axis;
    bool is_written;
};

struct Task {
    int value;  // the value that it computes, the first of several
    Split split;
    std::function<void(const Worker&)> work;
    std::vector<Access> accesses = {};    // where it is split by examples, those of its group left out
    std::shared_ptr<Group> group = {};    // what is done with each of its tiles
    bool wait = true;                     // for all threads, when it is done
};

struct Executor::Implementation {
    Implementation(Program p, std::shared_ptr<ThreadPool> threads, Index line);
    virtual ~Implementation() = default;
    virtual void run(bool timed, std::vector<double>& seconds) = 0;

    // Memory for the buffers of the program, the inputs left out; and for one more, of a matrix.
    void allocate_buffers();
    int add_buffer(const Shape& shape, const std::string& dtype);

    void take(int input, const void* data, Index rows, bool follow, const std::vector<Index>& indices);
    void check_constant(int input) const;  // throws where the program changes it

    double read(const Scalar& scalar) const;
    void write(int buffer, double x) const;

    Program program;
    std::shared_ptr<ThreadPool> pool;
    const Index line;             // elements of a matrix in a cache line
    std::vector<void*> pointers;  // of the buffers
    std::vector<Index> strides;   // the distances of their rows
    std::vector<bool> is_padded;  // whether rows end with zeros
    std::vector<bool> is_split;   // whether every strip of columns, which are examples, has a block of memory of its own
    std::map<std::string, Support> supports;
    std::vector<Memory> owned;
    std::map<int, Memory> gathered;  // the rows of inputs that are examples

    // The batch, where every thread takes examples of its own, strip by strip; 0 where all take parts of all examples.
    Index examples = 0;
    int strips = 0;
    Index first_example(int strip) const;
};

template <class T>
class TypedExecutor : public Executor::Implementation {
public:
    TypedExecutor(Program p, std::shared_ptr<ThreadPool> threads, const std::string& instruction_set);
    void run(bool timed, std::vector<double>& seconds) override;

private:
    // planning.cpp, products.cpp: the tasks of every value
    void plan(int value);
    void plan_scalar(int value);
    void plan_elementwise(int value, Elementwise operation);
    void plan_copy(int to, int from);
    void plan_product(int value);
    bool plan_product_by_examples(int value, const Factors& factors);
    void plan_sparse_product(int value);
    void plan_sampled_product(int value);
    void plan_other(int value);
    void plan_reduction(int value);
    void plan_waits();

    Task& add(int value, Split split, std::function<void(const Worker&)> work);
    Task& add(int value, Index size, std::function<void(const Worker&)> work) {
        return add(value, size < kSmall ? Split::alone : Split::parts, std::move(work));
    }
    void append(int value, const Shape& shape, Instruction instruction);
    void transpose(int value, const Shape& shape, int out, const Operand& x);
    std::vector<Access> accesses(const Task& task) const;
    Axis axis(const Shape& shape, const Operand& x) const;
    bool has_examples(const Shape& shape) const;

    Scalar scalar(int value) const;
    Operand direct(int buffer) const { return {buffer, strides[buffer], 1, {}}; }
    Operand operand(int value) const;
    Operand together(int value, Operand x);
    int twin(int buffer);
    void copy(int value, int to, int from);
    int whole(int value) const;
    int padded_matrix(int value) const;

    // execution.cpp: what the tasks do
    double compute(Elementwise operation, const std::vector<Scalar>& x) const;
    std::uint32_t hash_key(const Scalar& seed, const Scalar& count) const;
    void run_group(const Group& group, const Worker& worker) const;
    void run_region(const Group& group, const Tile& region, int thread, int strip) const;
    void run_tile(const Group& group, const Tile& tile, int thread, int strip) const;
    void fetch_tile(const Group& group, const Tile& tile, int known) const;
    View<const T> rows_of(const View<const T>& X, const Tile& tile, T* spare) const;
    void sample_by_examples(int out, T beta, int C, T alpha, const SparseIndex& W, int A, int B, const Worker& worker) const;
    void sample_by_elements(int out, T beta, int C, T alpha, const SparseIndex& W, int A, int B, const Worker& worker) const;
    void sum_by_examples(int out, int x, const Worker& worker) const;

    // Calls f(strip, begin, end) for the strips of a worker, and the examples [begin, end) in them.
    template <class F>
    void for_strips(const Worker& worker, F&& f) const {
        for (int strip = static_cast<int>(worker.begin(strips)); strip < worker.end(strips); ++strip)
            f(strip, first_example(strip), first_example(strip + 1));
    }

    // Element (i, j) of a buffer is data[i * stride + j]; where the matrix is split, if j is an example of the strip.
    T* data(int buffer, int strip = 0) const {
        T* p = static_cast<T*>(pointers[buffer]);
        return is_split[buffer] ? p + strip * program.buffers[buffer].shape[0] * strides[buffer] - first_example(strip) : p;
    }
    // A strip of a matrix that a sparse product reads or writes; all of it where the threads do not take examples.
    Padded<T> padded(int buffer, int strip) const {
        return {data(buffer, strip) + (examples ? first_example(strip) : 0), strides[buffer]};
    }
    View<const T> view(const Operand& x, Index rows, Index columns, T& number, int strip = 0) const;

    const Kernels<T>& kernels_;
    std::vector<Task> tasks_;
    std::shared_ptr<Group> group_;  // the group that the next instruction may join
    std::map<int, int> twins_;      // matrices as one for those that are split
    Index scratch_size_ = 1;
    Memory scratch_;  // of all threads
    Index own_size_ = 2 * kTile;
    std::vector<Memory> own_;  // scratch memory of every thread: two tiles, and more for products
};

}  // namespace matgrad
