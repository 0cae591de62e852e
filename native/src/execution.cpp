// What the tasks do. All threads go through the same list of them.
#include <chrono>
#include <cmath>

#include "typed_executor.h"

namespace matgrad {

template <class T>
void TypedExecutor<T>::run(bool timed, std::vector<double>& seconds) {
    pool->run([&](const Worker& worker) {
        using Clock = std::chrono::steady_clock;
        auto start = Clock::now();
        for (const Task& task : tasks_) {
            if (task.split != Split::alone)
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

// -- operations on scalars ------------------------------------------------------------------------------------

// An operation on scalars, in the order of the operands of the table.
template <class T>
double TypedExecutor<T>::compute(Elementwise operation, const std::vector<Scalar>& x) const {
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

// What the numbers of `uniform` depend on, but for their positions.
template <class T>
std::uint32_t TypedExecutor<T>::hash_key(const Scalar& seed, const Scalar& count) const {
    const auto whole_number = [this](const Scalar& x) { return static_cast<std::uint32_t>(std::int64_t(read(x))); };
    return mix(mix(whole_number(count)) ^ whole_number(seed));
}

// -- operations on elements -----------------------------------------------------------------------------------

// What an operand is at present; a repeated number lives as long as the view.
template <class T>
View<const T> TypedExecutor<T>::view(const Operand& x, Index rows, Index columns, int thread) const {
    if (x.buffer >= 0) return {data(x.buffer, thread), rows, columns, x.row_stride, x.column_stride};
    static thread_local T numbers[8];
    static thread_local int next = 0;
    next = (next + 1) % 8;
    numbers[next] = static_cast<T>(read(x.scalar));
    return {&numbers[next], rows, columns, 0, 0};
}

template <class T>
void TypedExecutor<T>::run_group(const Group& group, const Worker& worker) const {
    if (group.by_examples) {
        const Index from = begin(worker), count = end(worker) - from;
        if (group.columns == examples)
            return run_region(group, {0, from, group.rows, count}, worker.index);
        return run_region(group, {from, 0, count, group.columns}, worker.index);
    }
    const Index columns = std::min(group.columns, kTile);
    const Index rows = std::max<Index>(1, kTile / columns);
    const Index down = (group.rows + rows - 1) / rows, across = (group.columns + columns - 1) / columns;
    for (Index t = worker.begin(down * across); t < worker.end(down * across); ++t) {
        const Index row = t / across * rows, column = t % across * columns;
        run_tile(group, {row, column, std::min(rows, group.rows - row), std::min(columns, group.columns - column)},
                 worker.index);
    }
}

template <class T>
void TypedExecutor<T>::run_region(const Group& group, const Tile& region, int thread) const {
    if (group.instructions.empty()) return;
    const Index columns = std::min(region.columns, kTile), rows = std::max<Index>(1, kTile / columns);
    for (Index i = 0; i < region.rows; i += rows)
        for (Index j = 0; j < region.columns; j += columns)
            run_tile(group,
                     {region.row + i, region.column + j, std::min(rows, region.rows - i), std::min(columns, region.columns - j)},
                     thread);
}

template <class T>
void TypedExecutor<T>::run_tile(const Group& group, const Tile& tile, int thread) const {
    T* spare = static_cast<T*>(tiles_[thread].get());
    for (const Instruction& instruction : group.instructions) {
        Index x_stride, y_stride;
        const T* x = rows_of(instruction.x, group, tile, spare, thread, x_stride);
        const T* y = rows_of(instruction.y, group, tile, spare + kTile, thread, y_stride);
        const Index out_stride = strides[instruction.out];
        T* out = data(instruction.out, thread) + tile.row * out_stride + tile.column;
        kernels_.elementwise[static_cast<int>(instruction.operation)](out, out_stride, x, x_stride, y, y_stride,
                                                                      static_cast<T>(read(instruction.c)), tile.rows,
                                                                      tile.columns);
    }
}

// The tile of an operand with contiguous rows; `spare` is used where they are not.
template <class T>
const T* TypedExecutor<T>::rows_of(const Operand& x, const Group& group, const Tile& tile, T* spare, int thread,
                                   Index& stride) const {
    const View<const T> X = view(x, group.rows, group.columns, thread);
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

// -- sums over examples -----------------------------------------------------------------------------------------

// out = β·C + α·(A Bᵀ at the stored elements of W). Each thread sums over its examples, a chunk of elements at a
// time; then each adds up what all have found for a part of the chunk.
template <class T>
void TypedExecutor<T>::sample_by_examples(T* out, T beta, const T* C, T alpha, const Sample<T>& sample,
                                          const Worker& worker) const {
    const auto each = [this](Elementwise operation, T* out, const T* x, const T* y, T c, Index n) {
        kernels_.elementwise[static_cast<int>(operation)](out, 0, x, 0, y, 0, c, 1, n);
    };
    const Index from = begin(worker), size = sample.W.starts[sample.W.rows];
    T* sums = static_cast<T*>(scratch_.get());
    for (Index first = 0; first < size; first += kChunk) {
        const Index count = std::min(kChunk, size - first);
        const Sample<T> mine{sample.W, sample.A + from, sample.B + from, sample.stride};
        kernels_.sampled_product(sums + worker.index * kChunk, T(0), nullptr, T(1), mine, end(worker) - from, first, first + count);
        worker.wait();
        const Index begin = worker.begin(count), part = worker.end(count) - begin;
        T* total = sums + begin;
        for (int i = 1; i < worker.count; ++i) each(Elementwise::add, total, total, total + i * kChunk, T(0), part);
        T* to = out + first + begin;
        if (beta == 0) {
            each(Elementwise::scale, to, total, total, alpha, part);
        } else {
            const T* c = C + first + begin;
            if (beta != 1) each(Elementwise::scale, to, c, c, beta, part);
            each(Elementwise::add_scaled, to, beta != 1 ? to : c, total, alpha, part);
        }
        sums = sums == scratch_.get() ? sums + worker.count * kChunk : static_cast<T*>(scratch_.get());  // the other half
    }
}

// out = rows_sum(x), for a matrix whose examples are apart
template <class T>
void TypedExecutor<T>::sum_by_examples(int out, int x, const Worker& worker) const {
    const Index rows = program.buffers[x].shape[0], from = begin(worker);
    T* sums = static_cast<T*>(scratch_.get());
    const View<const T> X{data(x, worker.index) + from, rows, end(worker) - from, strides[x], 1};
    kernels_.rows_sum(sums + worker.index * rows, 1, X, 0, rows);
    worker.wait();
    for (Index r = worker.begin(rows); r < worker.end(rows); ++r) {
        T sum = sums[r];
        for (int i = 1; i < worker.count; ++i) sum += sums[i * rows + r];
        data(out, 0)[r * strides[out]] = sum;
    }
}

template class TypedExecutor<float>;
template class TypedExecutor<double>;

}  // namespace matgrad
