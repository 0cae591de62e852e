// Reads programs and checks that they are sound.
#include "matgrad/program.h"

#include <algorithm>
#include <map>
#include <sstream>
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
    if (shape.size() != 0 && shape.size() != 2 && shape.size() != 3)
        throw std::invalid_argument("expected a matrix, a scalar or a support");
    return shape;
}

// The shapes of the operands and of the result: "m n" is a matrix, "()" a scalar, "*" either, "K D nnz" a support. A name
// stands for the same size everywhere in a rule, and 1 for itself.
struct Rule {
    std::vector<std::string> operands;
    std::string result;
};

// The rules of matgrad/program/operations.py, which a test compares them with; if an operation has two, either will do.
const std::multimap<std::string, Rule> kRules = {
    {"input", {{}, "*"}},
    {"number", {{}, "()"}},
    {"support", {{}, "K D nnz"}},
    // views
    {"transpose", {{"m n"}, "n m"}},
    {"row_repeat", {{"1 n"}, "m n"}},
    {"column_repeat", {{"m 1"}, "m n"}},
    {"full", {{"()"}, "m n"}},
    // elementwise
    {"add", {{"*", "*"}, "*"}},
    {"subtract", {{"*", "*"}, "*"}},
    {"hadamard", {{"*", "*"}, "*"}},
    {"negative", {{"*"}, "*"}},
    {"copy", {{"*"}, "*"}},
    {"scale", {{"()", "*"}, "*"}},
    {"divide", {{"*", "()"}, "*"}},
    {"power", {{"*", "()"}, "*"}},
    {"exp", {{"*"}, "*"}},
    {"log", {{"*"}, "*"}},
    {"log1p", {{"*"}, "*"}},
    {"reciprocal", {{"*"}, "*"}},
    {"sqrt", {{"*"}, "*"}},
    {"tanh", {{"*"}, "*"}},
    {"erf", {{"*"}, "*"}},
    {"step", {{"*"}, "*"}},
    {"add_scaled", {{"*", "()", "*"}, "*"}},
    {"gate", {{"*", "*"}, "*"}},
    // reductions and products
    {"elements_sum", {{"m n"}, "()"}},
    {"columns_sum", {{"m n"}, "1 n"}},
    {"rows_sum", {{"m n"}, "m 1"}},
    {"columns_max", {{"m n"}, "1 n"}},
    {"rows_max", {{"m n"}, "m 1"}},
    {"matmul", {{"m k", "k n"}, "m n"}},
    {"product_sum", {{"()", "m n", "()", "m k", "k n"}, "m n"}},
    // sparse matrices
    {"sparse_product", {{"K D nnz", "1 nnz", "D N"}, "K N"}},
    {"sparse_transposed_product", {{"K D nnz", "1 nnz", "K N"}, "D N"}},
    {"sampled_product", {{"K D nnz", "K N", "D N"}, "1 nnz"}},
    {"sampled_sum", {{"K D nnz", "()", "1 nnz", "()", "K N", "D N"}, "1 nnz"}},
    {"uniform_on", {{"K D nnz", "()", "()"}, "1 nnz"}},
    // others
    {"identity", {{}, "n n"}},
    {"diag", {{"n n"}, "n 1"}},
    {"Diag", {{"1 n"}, "n n"}},
    {"Diag", {{"n 1"}, "n n"}},
    {"uniform", {{"()", "()"}, "m n"}},
};

// Whether a shape matches a pattern; `known` has what the names stand for so far.
bool matches(const std::string& pattern, const Shape& shape, std::map<std::string, Shape>& known) {
    const auto stands_for = [&](const std::string& name, const Shape& found) {
        return known.emplace(name, found).first->second == found;
    };
    if (pattern == "()") return shape.empty();
    if (pattern == "*") return shape.size() != 3 && stands_for(pattern, shape);
    std::istringstream names(pattern);
    std::size_t k = 0;
    for (std::string name; names >> name; ++k)
        if (k == shape.size() || !stands_for(name, {shape[k]})) return false;
    return k == shape.size();
}

bool fits(const Rule& rule, const Shape& result, const std::vector<Shape>& operands) {
    std::map<std::string, Shape> known = {{"1", {1}}};
    bool fit = operands.size() == rule.operands.size();
    for (std::size_t k = 0; fit && k < operands.size(); ++k) fit = matches(rule.operands[k], operands[k], known);
    return fit && matches(rule.result, result, known);
}

// Whether the operation has a result of this shape for operands of those shapes.
bool fits(const std::string& operation, const Shape& result, const std::vector<Shape>& operands) {
    const auto [first, last] = kRules.equal_range(operation);
    return std::any_of(first, last, [&](const auto& entry) { return fits(entry.second, result, operands); });
}

bool is_view(const std::string& operation) {
    return operation == "transpose" || operation == "row_repeat" || operation == "column_repeat" || operation == "full";
}

}  // namespace

std::vector<std::string> operations() {
    std::vector<std::string> names;
    for (auto entry = kRules.begin(); entry != kRules.end(); entry = kRules.upper_bound(entry->first)) names.push_back(entry->first);
    return names;
}

std::size_t element_size(const std::string& dtype) {
    if (dtype == "float32" || dtype == "int32") return 4;
    if (dtype == "float64" || dtype == "int64") return 8;
    throw std::invalid_argument("dtype: expected float32, float64, int32 or int64, found " + dtype);
}

Program::Program(const Json& description) {
    const Json& names = description.at("sizes");
    if (description.at("format").integer() != 2) throw std::invalid_argument("expected a program of format 2");
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
            const Json& written = line.at("number");
            const Json& number = written.is_string() ? names.at(written.string()) : written;
            value.number = number.is_whole() ? Number(std::int64_t(number.integer())) : Number(number.number());
        }
        std::vector<Shape> shapes;
        for (const auto& operand : line.at("operands").array()) {
            const long long k = operand.integer();
            if (k < 0 || k >= static_cast<long long>(i)) refuse(i, "expected operands before it");
            value.operands.push_back(static_cast<int>(k));
            shapes.push_back(values[k].shape);
        }
        if (!kRules.contains(value.operation)) refuse(i, "unknown operation " + value.operation);
        if (!fits(value.operation, value.shape, shapes)) refuse(i, value.operation + ": the shapes do not fit");
        if (line.has("name")) value.name = line.at("name").string();
        if (value.operation != "number" && value.operation != "support" && !is_view(value.operation)) {
            const long long k = line.at("buffer").integer();
            if (k < 0 || k >= static_cast<long long>(buffers.size())) refuse(i, "unknown buffer");
            const Buffer& buffer = buffers[k];
            if (buffer.shape != value.shape || buffer.dtype != value.dtype) refuse(i, "its buffer has a different shape or dtype");
            if (value.operation == "input" && buffer.name.empty()) refuse(i, "an input needs a named buffer");
            if (value.operation.starts_with("sparse_") && !buffer.name.empty()) refuse(i, "a sparse product cannot be an output");
            value.buffer = static_cast<int>(k);
        }
        values.push_back(std::move(value));
    }
    for (const auto& pair : description.at("copies").array()) {
        const auto& [to, from] = std::pair{pair.array().at(0).integer(), pair.array().at(1).integer()};
        const long long count = buffers.size();
        if (to < 0 || from < 0 || to >= count || from >= count || buffers[to].shape != buffers[from].shape ||
            buffers[to].dtype != buffers[from].dtype)
            throw std::invalid_argument("a copy between buffers of different shapes or dtypes");
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
