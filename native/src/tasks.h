// The tasks of a program, and what they do on its memory, for matrices with elements of type T.
#pragma once

#include <algorithm>
#include <compare>
#include <functional>
#include <memory>
#include <vector>

#include "storage.h"

namespace matgrad {

constexpr Index kTile = 4096;    // elements that are processed at once: they fit the L1 cache
constexpr Index kChunk = 16384;  // stored elements per thread whose sums are added up at once

// A matrix in a buffer, possibly transposed or repeated, or a repeated scalar; or X Eᵀ or stack(X Eᵀ, P) for the matrix X in the
// buffer, which has windows.
struct Operand {
    int buffer = -1;
    Index row_stride = 0, column_stride = 0;
    Scalar scalar;
    const Windows* windows = nullptr;
};

// out = f(x, y, c), element by element.
struct Instruction {
    Op operation;
    int out;
    Operand x, y;
    Scalar c;
};

// C = β·S + α·A B, an m×n matrix; k is the number of columns of A. A or B may have windows.
struct Factors {
    Operand A, B, S;
    Scalar alpha, beta;
    Index m, n, k;
    const Windows* C = nullptr;  // of the result, if A B is added to them
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
    std::vector<Access> accesses = {};  // of a task that is split by examples, without those of its group
    std::shared_ptr<Group> group = {};  // operations that follow on each of its tiles
    Wait wait = Wait::all;
};

// What tasks do.
template <class T>
class Calculator {
public:
    Calculator(const Program& program, const Layout& layout, const Storage& storage, const Kernels<T>& kernels)
        : program(program), layout(layout), storage(storage), kernels(kernels) {}

    const Program& program;
    const Layout& layout;
    const Storage& storage;
    const Kernels<T>& kernels;
    Memory scratch;                      // shared by all threads
    std::vector<Memory> thread_scratch;  // one per thread: two tiles, and more for products

    // Element (i, j) of a buffer is data[i * stride + j]; if the matrix is split, for an example j of the strip.
    T* data(int buffer, int strip = 0) const { return static_cast<T*>(storage[buffer]) + layout.offset(buffer, strip); }
    // A strip of a matrix that a sparse product reads or writes; all of it if the threads do not take their own examples.
    Padded<T> padded(int buffer, int strip) const {
        return {data(buffer, strip) + (layout.examples() ? layout.first_example(strip) : 0), layout.stride(buffer)};
    }
    Operand direct(int buffer) const { return {buffer, layout.stride(buffer), 1, {}}; }  // the matrix as it is
    T read(const Scalar& x) const { return storage.read<T>(x); }
    // The present content of an operand; if it repeats a scalar, that is stored in `number`.
    View<const T> view(const Operand& x, Index rows, Index columns, T& number, int strip = 0) const;
    View<const T> summand(const Factors& factors, int strip) const;

    void compute_scalar(int out, Op operation, const std::vector<Scalar>& x) const;
    static double elements_sum(View<const T> X);
    std::uint32_t hash_key(const Scalar& seed, const Scalar& count) const;

    void run_group(const Group& group, const Worker& worker) const;
    Tile share(const Group& group, Index begin, Index end, const Worker& member) const;
    void run_region(const Group& group, const Tile& region, int thread, int strip) const;
    void run_tile(const Group& group, const Tile& tile, int thread, int strip) const;
    void fetch_tile(const Group& group, const Tile& tile, int known) const;

    Index chunk_size() const { return kChunk * layout.threads() / layout.teams(); }
    void sample_by_examples(int out, T beta, int C, T alpha, const Sampled& S, const Worker& worker) const;
    void sample_by_elements(int out, T beta, int C, T alpha, const Sampled& S, const Worker& worker) const;
    void sum_by_examples(int out, int x, const Worker& worker) const;

private:
    double compute(Op operation, const std::vector<Scalar>& x) const;
    std::int64_t count(Op operation, const std::vector<Scalar>& x) const;
    View<const T> rows_of(const View<const T>& X, const Tile& tile, T* spare) const;
    void sample(T* out, T beta, const T* C, T alpha, const Sampled& S, int from, int to, Index first, Index last) const;
};

}  // namespace matgrad
