// The tasks of each value of a program: which threads do them, and where these wait for one another.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "batch.h"
#include "tasks.h"

namespace matgrad {

template <class T>
class Planner {
public:
    // `collective` is called with the index of every value that is a collective.
    Planner(Program& program, Layout& layout, Storage& storage, Batch& batch, Calculator<T>& calculator,
            const std::function<void(int)>& collective)
        : program_(program), layout_(layout), storage_(storage), batch_(batch), calculator_(calculator), collective_(collective) {
    }
    std::vector<Task> plan();  // and the calculator's scratch

private:
    // planning.cpp, products.cpp, blocks.cpp: the tasks of each value
    void plan(int value);
    void plan_scalar(int value);
    void plan_elementwise(int value);
    void plan_copy(int to, int from);
    void plan_product(int value);
    void add_product(int value, const Factors& factors, const Shape& shape);
    bool plan_product_by_examples(int value, const Factors& factors);
    bool plan_added_windows(int value);
    bool plan_shared(int value);
    void plan_windows_max(int value);
    const Windows* windows_with_bands(int stack);
    int operand_of(int value, Op operation, std::size_t k) const;
    void plan_block_product(int value);
    void plan_one_hot_product(int value);
    void plan_selection(int value);
    void plan_sparse_product(int value);
    void plan_sampled_product(int value);
    void plan_sparse_sum(int value);
    void plan_dense(int value);
    void plan_collective(int value);
    void plan_uniform(int value);
    void plan_uniform_on(int value);
    void plan_diagonal(int value);
    void plan_reduction(int value);
    void plan_waits();

    Task& add(int value, Split split, std::function<void(const Worker&)> work);
    Task& add(int value, Index size, std::function<void(const Worker&)> work);
    void add_scalar(int value, int out, Op operation, const std::vector<Scalar>& x);
    void append(int value, const Shape& shape, Instruction instruction);
    void transpose(int value, const Shape& shape, int out, const Operand& x);
    std::vector<Access> accesses(const Task& task) const;
    Axis axis(const Shape& shape, const Operand& x) const;

    Scalar scalar(int value) const;
    Operand direct(int buffer) const { return calculator_.direct(buffer); }
    Operand operand(int value) const { return operands_[value]; }
    Operand place(int value);
    bool is_deferred(int value) const;
    bool reads_deferred(int value) const;
    void check_readable(int value) const;
    [[noreturn]] void refuse_deferred(int value) const;
    Operand unsplit(int value, Operand x);
    int unsplit_buffer(int buffer);
    void copy(int value, int to, int from);
    int stored_buffer(int value) const;
    int padded_buffer(int value) const;
    const Support& support(int value) { return storage_.supports[program_.values[value].name]; }

    Program& program_;
    Layout& layout_;
    Storage& storage_;
    Batch& batch_;
    Calculator<T>& calculator_;
    const std::function<void(int)>& collective_;
    std::vector<Operand> operands_;  // where the matrices among the values are
    std::vector<Task> tasks_;
    std::shared_ptr<Group> group_;        // the group that the next instruction may join
    std::map<int, int> unsplit_buffers_;  // by the split buffers whose matrices they hold in one block
    Index scratch_size_ = 1, thread_scratch_size_ = 2 * kTile;
};

}  // namespace matgrad
