// Rows of the caller's examples as the inputs of one step.
#pragma once

#include <map>
#include <vector>

#include "storage.h"

namespace matgrad {

// Throws std::invalid_argument if a row of sparse examples ends before it begins, or has an element outside its D columns.
void check_rows(const Examples& examples, Index D);

class Batch {
public:
    Batch(const Program& program, Storage& storage, ThreadPool& pool) : program_(program), storage_(storage), pool_(pool) {}

    // Binds an input to the rows of `data` with these indices: in place if they are consecutive or the program only transposes them,
    // else to copies of them.
    void bind(int input, const void* data, Index rows, bool are_consecutive, const std::vector<Index>& indices);
    // Makes the rows of the sparse examples with these indices the batch, in linear time. Their elements have been checked.
    void bind_sparse(const Examples& examples, const std::vector<Index>& rows);
    void forget(int input) { chosen_rows_[input].clear(); }  // it is bound to other memory
    // The rows of an input that are transposed from where they are, without a copy; all of them if there are none.
    const std::vector<Index>& chosen_rows(int input) { return chosen_rows_[input]; }

private:
    bool reads_only_transpose(int input) const;
    void index_columns(const Worker& worker);

    const Program& program_;
    Storage& storage_;
    ThreadPool& pool_;
    std::map<int, Memory> gathered_;          // copies of rows
    std::map<int, bool> is_only_transposed_;  // of inputs that have been bound
    std::map<int, std::vector<Index>> chosen_rows_;

    // the elements of sparse examples, by rows and by columns
    std::vector<std::int64_t> starts_, column_starts_;
    std::vector<std::int32_t> columns_, rows_, positions_;
    std::vector<std::byte> values_;
};

}  // namespace matgrad
