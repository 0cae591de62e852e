// What the operations of a program take and return.
#pragma once

#include <string>
#include <vector>

#include "matgrad/program.h"

namespace matgrad {

// The operation called `name`; throws std::invalid_argument if there is none.
Op operation_of(const std::string& name);

// The multiplications, or the elements, that a value takes; -1 if the shapes of operands and result do not fit.
Index work(Op operation, const std::vector<Shape>& operands, const Shape& result);

inline bool works_in_place(const Row& row, std::size_t operand) {
    return row.kind == Kind::elementwise || operand == static_cast<std::size_t>(row.in_place);
}

// W X or Wᵀ X, without a sum
inline bool is_sparse_product(Op operation) {
    return operation == Op::sparse_product || operation == Op::sparse_transposed_product;
}

// a product with one_hot(x, n), or its transpose
inline bool is_one_hot(Op operation) { return operation == Op::one_hot_product || operation == Op::one_hot_transposed_product; }

inline bool is_stack(Op operation) { return operation == Op::stack || operation == Op::unstack; }

// what may be computed where it is read: a matrix without a buffer
inline bool is_deferrable(const Value& v) {
    const Kind kind = row_of(v.operation).kind;
    return v.shape.size() == 2 && kind != Kind::source && kind != Kind::view && kind != Kind::collective;
}

bool is_float(const std::string& dtype);
bool is_counter(const std::string& dtype);

}  // namespace matgrad
