// What the operations of a program take and return.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "matgrad/program.h"

namespace matgrad {

// How a value comes about: it is given, it is another view of an operand's memory, or it is computed, by all ranks together if it
// is a collective.
enum class Kind { source, view, elementwise, product, sparse, other, collective };

// The dtypes of operands and result: floats; floats or counters, which are whole numbers; counters for a result of floats.
enum class Dtypes { floats, any, counts };

// The sizes of a shape: "m n" of a matrix, none of a scalar, "*" of either, "K D nnz" of a support.
using Pattern = std::vector<std::string>;

struct Operation {
    std::vector<std::vector<Pattern>> rules;  // of the operands, then of the result; if there are two, either will do
    Kind kind;
    Dtypes dtypes;
    std::size_t in_place;  // of a product: the operand whose memory the result may take over; a collective's must

    // The multiplications, or the elements, that a value takes; -1 if the shapes of operands and result do not fit.
    Index work(const std::vector<Shape>& operands, const Shape& result) const;
    bool works_in_place(std::size_t operand) const { return kind == Kind::elementwise || operand == in_place; }
};

// The operation called `name`; throws std::invalid_argument if there is none.
const Operation& operation_of(const std::string& name);

bool is_float(const std::string& dtype);
bool is_counter(const std::string& dtype);

}  // namespace matgrad
