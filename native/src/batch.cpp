// Rows of the caller's examples as the inputs of one step.
#include "batch.h"

#include <cstring>
#include <limits>

#include "matgrad/errors.h"
#include "operations.h"

namespace matgrad {

namespace {

constexpr Index kSmall = 8192;  // elements that one thread copies faster than several

void run(ThreadPool& pool, Index size, const std::function<void(const Worker&)>& job) {
    if (size < kSmall)
        job(Worker{0, 1, nullptr});
    else
        pool.run(job);
}

}  // namespace

void check_rows(const Examples& examples, Index D) {
    const std::int64_t* starts = examples.starts;
    for (Index i = 0; i < examples.size; ++i)
        if (starts[i + 1] < starts[i]) refuse("X: row " + std::to_string(i) + " ends before it begins");
    for (std::int64_t p = starts[0]; p < starts[examples.size]; ++p)
        if (examples.columns[p] < 0 || examples.columns[p] >= D)
            refuse("X: expected columns from 0 to " + std::to_string(D - 1) + ", found " + std::to_string(examples.columns[p]));
}

// Whether a matrix is an input of several columns of which the program reads nothing but the transpose, to copy it.
bool Batch::reads_only_transpose(int input) const {
    const Buffer& buffer = program_.buffers[input];
    if (buffer.name.empty() || buffer.shape.size() != 2 || buffer.shape[1] < 2 || program_.writes(input)) return false;
    for (const auto& [to, from] : program_.copies)
        if (from == input) return false;
    for (const Value& v : program_.values)
        for (int k : v.operands) {
            const Value& x = program_.values[k];
            if (x.buffer == input && v.operation != Op::transpose) return false;
            const bool is_transpose = x.operation == Op::transpose && program_.values[x.operands[0]].buffer == input;
            if (is_transpose && (x.buffer >= 0 || v.operation != Op::copy)) return false;
        }
    return true;
}

void Batch::bind(int input, const void* data, Index rows, bool are_consecutive, const std::vector<Index>& indices) {
    const Buffer& buffer = program_.buffers[input];
    for (Index i : indices)
        if (i < 0 || i >= rows) refuse(buffer.name + " has no row " + std::to_string(i));
    const Index N = buffer.shape[0], bytes = element_size(buffer.dtype) * buffer.shape[1];
    const auto row = [&](Index i) { return static_cast<const std::byte*>(data) + indices[i] * bytes; };
    forget(input);
    if (are_consecutive) return storage_.bind(input, row(0));
    const auto [only, is_new] = is_only_transposed_.try_emplace(input, false);
    if (is_new) only->second = reads_only_transpose(input);
    if (only->second) {
        storage_.bind(input, data);
        chosen_rows_[input] = indices;
        return;
    }
    Memory& copies = gathered_[input];
    if (!copies) copies = storage_.reserve(N * bytes);
    storage_.bind(input, copies.get());
    run(pool_, N * buffer.shape[1], [&](const Worker& worker) {
        for (Index i = worker.begin(N); i < worker.end(N); ++i)
            std::memcpy(static_cast<std::byte*>(copies.get()) + i * bytes, row(i), bytes);
    });
}

// Sorts the elements of the batch by columns, by counting; every worker takes some of the columns.
void Batch::index_columns(const Worker& worker) {
    const Index D = static_cast<Index>(column_starts_.size()) - 1, first = worker.begin(D), last = worker.end(D);
    std::int64_t before = 0;  // elements in the columns of the workers before
    for (std::int32_t column : columns_) {
        before += column < first;
        if (column >= first && column < last) ++column_starts_[column];
    }
    for (Index column = first; column < last; ++column)  // the end of each column for now
        before += column_starts_[column], column_starts_[column] = before;
    if (last == D) column_starts_[D] = before;
    for (Index i = static_cast<Index>(starts_.size()) - 2; i >= 0; --i)
        for (std::int64_t p = starts_[i + 1] - 1; p >= starts_[i]; --p) {
            const std::int32_t column = columns_[p];
            if (column < first || column >= last) continue;
            const std::int64_t place = --column_starts_[column];
            rows_[place] = static_cast<std::int32_t>(i), positions_[place] = static_cast<std::int32_t>(p);
        }
}

void Batch::bind_sparse(const Examples& examples, const std::vector<Index>& rows) {
    const Index D = program_.supports.at(kExamples)[1], size = element_size(program_.dtype);
    std::int64_t count = 0;
    for (Index row : rows) {
        if (row < 0 || row >= examples.size) refuse("X has no row " + std::to_string(row));
        count += examples.starts[row + 1] - examples.starts[row];
        if (count > std::numeric_limits<std::int32_t>::max()) refuse("X: a batch has too many elements");
    }
    const Index asked = checked_sum(storage_.reserved(), checked_product({count, 12 + size}) + 8 * (D + 1));
    program_.limits.check_memory(asked, "a batch of X");
    const Index N = static_cast<Index>(rows.size());
    starts_.assign(1, 0);
    for (Index row : rows) starts_.push_back(starts_.back() + examples.starts[row + 1] - examples.starts[row]);
    values_.reserve(size);  // so that it has an address, also if no example has an element
    columns_.resize(count), values_.resize(count * size);
    column_starts_.assign(D + 1, 0), rows_.resize(count), positions_.resize(count);
    run(pool_, count, [&](const Worker& worker) {
        for (Index i = worker.begin(N); i < worker.end(N); ++i) {
            const std::int64_t from = examples.starts[rows[i]], to = starts_[i], n = starts_[i + 1] - to;
            std::copy_n(examples.columns + from, n, columns_.begin() + to);
            std::copy_n(static_cast<const std::byte*>(examples.X) + from * size, n * size, values_.begin() + to * size);
        }
        worker.wait();
        index_columns(worker);
    });
    storage_.supports[kExamples] = {{starts_.data(), columns_.data(), nullptr, N},
                                    {column_starts_.data(), rows_.data(), positions_.data(), D}};
    storage_.bind(program_.buffer("X"), values_.data());
}

}  // namespace matgrad
