#include "operations.h"

#include <algorithm>
#include <sstream>

#include "matgrad/errors.h"

namespace matgrad {

namespace {

// "m k, k n -> m n": the shapes of the operands and of the result. A name stands for the same size everywhere in a rule, and 1
// for itself.
std::vector<Pattern> patterns_of(const std::string& rule) {
    std::vector<Pattern> patterns;
    const std::size_t arrow = rule.find("->");
    std::istringstream operands(rule.substr(0, arrow));
    const auto add = [&](const std::string& shape) {
        Pattern& pattern = patterns.emplace_back();
        std::istringstream names(shape);
        for (std::string name; names >> name;)
            if (name != "()") pattern.push_back(name);
    };
    for (std::string shape; std::getline(operands, shape, ',');)
        if (shape.find_first_not_of(' ') != std::string::npos) add(shape);
    add(rule.substr(arrow + 2));
    return patterns;
}

constexpr std::size_t kNone = 99;

Operation row(Kind kind, std::initializer_list<const char*> rules, Dtypes dtypes = Dtypes::floats, std::size_t in_place = kNone) {
    Operation operation{{}, kind, dtypes, in_place};
    for (const char* rule : rules) operation.rules.push_back(patterns_of(rule));
    return operation;
}

// The rows of matgrad/program/operations.py, which tests compare them with.
const std::map<std::string, Operation>& rows() {
    using enum Kind;
    using enum Dtypes;
    static const std::map<std::string, Operation> all = {
        {"input", row(source, {"-> *"}, any)},
        {"number", row(source, {"-> ()"}, any)},
        {"support", row(source, {"-> K D nnz"}, any)},
        {"transpose", row(view, {"m n -> n m"})},
        {"row_repeat", row(view, {"1 n -> m n"})},
        {"column_repeat", row(view, {"m 1 -> m n"})},
        {"full", row(view, {"() -> m n"})},
        {"add", row(elementwise, {"*, * -> *"}, any)},
        {"subtract", row(elementwise, {"*, * -> *"}, any)},
        {"hadamard", row(elementwise, {"*, * -> *"}, any)},
        {"negative", row(elementwise, {"* -> *"}, any)},
        {"copy", row(elementwise, {"* -> *"}, any)},
        {"scale", row(elementwise, {"(), * -> *"})},
        {"divide", row(elementwise, {"*, () -> *"})},
        {"power", row(elementwise, {"*, () -> *"})},
        {"exp", row(elementwise, {"* -> *"})},
        {"log", row(elementwise, {"* -> *"})},
        {"log1p", row(elementwise, {"* -> *"})},
        {"reciprocal", row(elementwise, {"* -> *"})},
        {"sqrt", row(elementwise, {"* -> *"})},
        {"tanh", row(elementwise, {"* -> *"})},
        {"erf", row(elementwise, {"* -> *"})},
        {"step", row(elementwise, {"* -> *"})},
        {"add_scaled", row(elementwise, {"*, (), * -> *"})},
        {"gate", row(elementwise, {"*, * -> *"})},
        {"elements_sum", row(other, {"m n -> ()"})},
        {"columns_sum", row(other, {"m n -> 1 n"})},
        {"rows_sum", row(other, {"m n -> m 1"})},
        {"columns_max", row(other, {"m n -> 1 n"})},
        {"rows_max", row(other, {"m n -> m 1"})},
        {"matmul", row(product, {"m k, k n -> m n"})},
        {"product_sum", row(product, {"(), m n, (), m k, k n -> m n"}, floats, 1)},
        {"sparse_product", row(sparse, {"K D nnz, 1 nnz, D N -> K N"})},
        {"sparse_transposed_product", row(sparse, {"K D nnz, 1 nnz, K N -> D N"})},
        {"transposed_sum", row(sparse, {"K D nnz, (), D N, (), 1 nnz, K N -> D N"}, floats, 2)},
        {"dense", row(sparse, {"K D nnz, 1 nnz -> K D"})},
        {"sampled_product", row(sparse, {"K D nnz, K N, D N -> 1 nnz"})},
        {"sampled_sum", row(sparse, {"K D nnz, (), 1 nnz, (), K N, D N -> 1 nnz"}, floats, 2)},
        {"uniform_on", row(sparse, {"K D nnz, (), () -> 1 nnz"}, counts)},
        {"identity", row(other, {"-> n n"})},
        {"diag", row(other, {"n n -> n 1"})},
        {"Diag", row(other, {"1 n -> n n", "n 1 -> n n"})},
        {"uniform", row(other, {"(), () -> m n"}, counts)},
        {"all_reduce", row(collective, {"* -> *"}, floats, 0)},
        {"all_max", row(collective, {"* -> *"}, floats, 0)},
        {"all_gather_rows", row(collective, {"m n -> p n"})},
        {"all_gather_columns", row(collective, {"m n -> m p"})},
        {"reduce_scatter_rows", row(collective, {"m n -> p n"})},
        {"reduce_scatter_columns", row(collective, {"m n -> m p"})},
        {"take_rows", row(collective, {"m n -> p n"})},
        {"take_columns", row(collective, {"m n -> m p"})},
        {"send", row(collective, {"* -> *"}, floats, 0)},
        {"receive", row(collective, {"* -> *"}, floats, 0)},
    };
    return all;
}

// Whether a shape matches a pattern; `known` has what the names stand for so far.
bool matches(const Pattern& pattern, const Shape& shape, std::map<std::string, Shape>& known) {
    const auto stands_for = [&](const std::string& name, const Shape& found) {
        return known.emplace(name, found).first->second == found;
    };
    if (pattern == Pattern{"*"}) return shape.size() != 3 && stands_for("*", shape);
    bool fits = pattern.size() == shape.size();
    for (std::size_t k = 0; fits && k < shape.size(); ++k) fits = stands_for(pattern[k], {shape[k]});
    return fits;
}

Index elements(const Shape& shape) {
    Index product = 1;
    for (Index n : shape) product = checked_product({product, n});
    return product;
}

}  // namespace

Index Operation::work(const std::vector<Shape>& operands, const Shape& result) const {
    for (const std::vector<Pattern>& patterns : rules) {
        std::map<std::string, Shape> known = {{"1", {1}}};
        bool fits = operands.size() + 1 == patterns.size();
        for (std::size_t k = 0; fits && k < operands.size(); ++k) fits = matches(patterns[k], operands[k], known);
        if (!fits || !matches(patterns.back(), result, known)) continue;
        const auto size = [&](const char* name) { return known.count(name) ? known.at(name)[0] : Index(1); };
        Index most = kind == Kind::product  ? checked_product({size("m"), size("k"), size("n")})
                     : kind == Kind::sparse ? checked_product({size("nnz"), size("N")})
                                            : 1;
        if (kind != Kind::source) most = std::max(most, elements(result));
        for (const Shape& shape : operands)
            if (shape.size() < 3) most = std::max(most, elements(shape));
        return most;
    }
    return -1;
}

const Operation& operation_of(const std::string& name) {
    const auto found = rows().find(name);
    if (found == rows().end()) refuse("unknown operation '" + readable(name) + "'");
    return found->second;
}

std::vector<std::string> operations() {
    std::vector<std::string> names;
    for (const auto& [name, operation] : rows()) names.push_back(name);
    return names;
}

bool is_float(const std::string& dtype) { return dtype == "float32" || dtype == "float64"; }
bool is_counter(const std::string& dtype) { return dtype == "int32" || dtype == "int64"; }

std::size_t element_size(const std::string& dtype) {
    if (!is_float(dtype) && !is_counter(dtype))
        refuse("dtype: expected float32, float64, int32 or int64, found '" + readable(dtype) + "'");
    return dtype.ends_with("64") ? 8 : 4;
}

}  // namespace matgrad
