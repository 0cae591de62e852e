// Reading programs, and checking that they are sound.
#include "matgrad/program.h"

#include <set>
#include <stdexcept>

namespace matgrad {

namespace {

[[noreturn]] void refuse(std::size_t i, const std::string& problem) {
    throw std::invalid_argument("value " + std::to_string(i) + ": " + problem);
}

Shape shape_of(const Json& sizes, const Json& names) {
    Shape shape;
    for (const auto& size : sizes.array()) {
        const long long n = size.is_string() ? names.at(size.string()).integer() : size.integer();
        if (n < 1) throw std::invalid_argument("expected sizes of 1 or more, found " + std::to_string(n));
        shape.push_back(static_cast<Index>(n));
    }
    if (shape.size() != 0 && shape.size() != 2) throw std::invalid_argument("expected a matrix or a scalar");
    return shape;
}

bool is_matrix(const Shape& s) { return s.size() == 2; }
bool is_row(const Shape& s) { return is_matrix(s) && s[0] == 1; }

// Whether an operation on operands of shapes x has a result of shape r; see matgrad/program/checking.py.
bool fits(const std::string& operation, const Shape& r, const std::vector<Shape>& x) {
    static const std::set<std::string> unary = {"negative", "copy", "exp", "log",  "log1p", "reciprocal",
                                                "sqrt",     "tanh", "erf", "step"};
    static const std::set<std::string> binary = {"add", "subtract", "hadamard", "gate"};
    const Shape scalar;
    const auto are = [&](std::vector<Shape> expected) { return x == expected; };
    if (operation == "input") return x.empty();
    if (operation == "support") return x.empty() && is_matrix(r);
    if (operation == "number") return x.empty() && r == scalar;
    if (operation == "identity") return x.empty() && is_matrix(r) && r[0] == r[1];
    if (operation == "full") return are({scalar}) && is_matrix(r);
    if (operation == "uniform") return are({scalar, scalar}) && is_matrix(r);
    if (operation == "scale") return are({scalar, r});
    if (operation == "divide" || operation == "power") return are({r, scalar});
    if (operation == "add_scaled") return are({r, scalar, r});
    if (binary.count(operation)) return are({r, r});
    if (unary.count(operation)) return are({r});
    if (operation == "uniform_on") return x.size() == 3 && is_matrix(x[0]) && x[1] == scalar && x[2] == scalar && is_row(r);
    if (operation == "elements_sum") return x.size() == 1 && is_matrix(x[0]) && r == scalar;
    if (x.empty() || !is_matrix(r) || !is_matrix(x.back())) return false;
    const Shape &X = x[0], &Y = x.back();
    if (operation == "sparse_product")
        return x.size() == 3 && is_matrix(X) && is_row(x[1]) && X[1] == Y[0] && r == Shape{X[0], Y[1]};
    if (operation == "sparse_transposed_product")
        return x.size() == 3 && is_matrix(X) && is_row(x[1]) && X[0] == Y[0] && r == Shape{X[1], Y[1]};
    if (operation == "sampled_product" || operation == "sampled_sum") {
        const bool is_sum = x.size() == 6;
        if (is_sum != (operation == "sampled_sum") || (!is_sum && x.size() != 3) || !is_matrix(X)) return false;
        const Shape& A = x[x.size() - 2];
        return is_matrix(A) && A[1] == Y[1] && A[0] == X[0] && Y[0] == X[1] && is_row(r) &&
               (!is_sum || (x[1] == scalar && x[2] == r && x[3] == scalar));
    }
    if (operation == "matmul") return x.size() == 2 && is_matrix(X) && X[1] == Y[0] && r == Shape{X[0], Y[1]};
    if (operation == "product_sum")
        return x.size() == 5 && x[0] == scalar && x[1] == r && x[2] == scalar && is_matrix(x[3]) && x[3][1] == Y[0] &&
               r == Shape{x[3][0], Y[1]};
    if (x.size() != 1) return false;
    if (operation == "transpose") return r == Shape{X[1], X[0]};
    if (operation == "row_repeat") return X[0] == 1 && r[1] == X[1];
    if (operation == "column_repeat") return X[1] == 1 && r[0] == X[0];
    if (operation == "columns_sum" || operation == "columns_max") return r == Shape{1, X[1]};
    if (operation == "rows_sum" || operation == "rows_max") return r == Shape{X[0], 1};
    if (operation == "diag") return X[0] == X[1] && r == Shape{X[0], 1};
    if (operation == "Diag") return (X[0] == 1 || X[1] == 1) && r == Shape{X[0] * X[1], X[0] * X[1]};
    return false;
}

bool is_view(const std::string& operation) {
    return operation == "transpose" || operation == "row_repeat" || operation == "column_repeat" || operation == "full";
}

}  // namespace

std::size_t element_size(const std::string& dtype) {
    if (dtype == "float32" || dtype == "int32") return 4;
    if (dtype == "float64" || dtype == "int64") return 8;
    throw std::invalid_argument("dtype: expected float32, float64, int32 or int64, found " + dtype);
}

Program::Program(const Json& description) {
    const Json& names = description.at("sizes");
    if (description.at("format").integer() != 1) throw std::invalid_argument("expected a program of format 1");
    for (const auto& line : description.at("buffers").array())
        buffers.push_back({shape_of(line.at("shape"), names), line.at("dtype").string(),
                           line.has("name") ? line.at("name").string() : ""});
    for (const auto& line : description.at("values").array()) {
        const std::size_t i = values.size();
        Value value;
        value.operation = line.at("operation").string();
        value.shape = shape_of(line.at("shape"), names);
        value.dtype = line.at("dtype").string();
        if (line.has("equation")) value.equation = line.at("equation").string();
        if (line.has("number")) {
            const Json& number = line.at("number");
            value.number = number.is_string() ? names.at(number.string()).number() : number.number();
        }
        std::vector<Shape> shapes;
        for (const auto& operand : line.at("operands").array()) {
            const long long k = operand.integer();
            if (k < 0 || k >= static_cast<long long>(i)) refuse(i, "expected operands before it");
            value.operands.push_back(static_cast<int>(k));
            shapes.push_back(values[k].shape);
        }
        if (!fits(value.operation, value.shape, shapes)) refuse(i, value.operation + ": the shapes do not fit");
        if (line.has("name")) value.name = line.at("name").string();
        const bool is_sparse = value.operation.starts_with("sparse_") || value.operation.starts_with("sampled_") ||
                               value.operation == "uniform_on";
        for (std::size_t k = 0; k < value.operands.size(); ++k)
            if ((values[value.operands[k]].operation == "support") != (is_sparse && k == 0))
                refuse(i, "a support belongs to a sparse operation, as its first operand");
        if (value.operation != "number" && value.operation != "support" && !is_view(value.operation)) {
            const long long k = line.at("buffer").integer();
            if (k < 0 || k >= static_cast<long long>(buffers.size())) refuse(i, "unknown buffer");
            const Buffer& buffer = buffers[k];
            if (buffer.shape != value.shape || buffer.dtype != value.dtype) refuse(i, "its buffer has another shape or dtype");
            if (value.operation == "input" && buffer.name.empty()) refuse(i, "an input needs a named buffer");
            if (value.operation.starts_with("sparse_") && !buffer.name.empty()) refuse(i, "a sparse product is no output");
            value.buffer = static_cast<int>(k);
        }
        values.push_back(std::move(value));
    }
    for (const auto& pair : description.at("copies").array()) {
        const auto& [to, from] = std::pair{pair.array().at(0).integer(), pair.array().at(1).integer()};
        const long long count = buffers.size();
        if (to < 0 || from < 0 || to >= count || from >= count || buffers[to].shape != buffers[from].shape ||
            buffers[to].dtype != buffers[from].dtype)
            throw std::invalid_argument("a copy between buffers that do not fit");
        copies.emplace_back(to, from);
    }
}

bool Program::writes(int buffer) const {
    for (const Value& v : values)
        if (v.buffer == buffer && v.operation != "input") return true;
    for (const auto& [to, from] : copies)
        if (to == buffer) return true;
    return false;
}

int Program::buffer(const std::string& name) const {
    for (std::size_t i = 0; i < buffers.size(); ++i)
        if (!name.empty() && buffers[i].name == name) return static_cast<int>(i);
    throw std::invalid_argument("the program has no input '" + name + "'");
}

}  // namespace matgrad
