#include "operations.h"

#include <algorithm>
#include <iterator>

#include "matgrad/errors.h"

namespace matgrad {

namespace {

// What the letters of a rule stand for so far; 0 is nothing.
struct Sizes {
    Index letters[128] = {};
    const Shape* any = nullptr;  // that of "*"

    Index operator[](char letter) const { return letters[static_cast<int>(letter)]; }

    // Whether a shape matches a pattern
    bool match(const char* pattern, const Shape& shape) {
        if (*pattern == '*') {
            if (!any) any = &shape;
            return shape.size() != 3 && shape == *any;
        }
        for (Index n : shape) {
            if (!*pattern) return false;
            Index& known = letters[static_cast<int>(*pattern++)];
            if (!known) known = n;
            if (known != n) return false;
        }
        return !*pattern;
    }
};

Index elements(const Shape& shape) {
    Index product = 1;
    for (Index n : shape) product = checked_product({product, n});
    return product;
}

}  // namespace

Index work(Op operation, const std::vector<Shape>& operands, const Shape& result) {
    const Row& row = row_of(operation);
    for (const auto& rule : row.rules) {
        if (!rule[0]) continue;
        Sizes sizes;
        sizes.letters['1'] = 1;
        std::size_t k = 0;
        while (k < operands.size() && rule[k] && rule[k + 1] && sizes.match(rule[k], operands[k])) ++k;
        if (k < operands.size() || rule[k + 1] || !sizes.match(rule[k], result)) continue;
        Index most = row.kind == Kind::product  ? checked_product({sizes['m'], sizes['k'], sizes['n']})
                     : row.kind == Kind::sparse ? checked_product({sizes['e'], std::max<Index>(sizes['N'], 1)})
                                                : 1;
        if (row.kind != Kind::source) most = std::max(most, elements(result));
        for (const Shape& shape : operands)
            if (shape.size() < 3) most = std::max(most, elements(shape));
        return most;
    }
    return -1;
}

Op operation_of(const std::string& name) {
    for (std::size_t k = 0; k < std::size(kOperations); ++k)
        if (name == kOperations[k].name) return static_cast<Op>(k);
    refuse("unknown operation '" + readable(name) + "'");
}

std::vector<std::string> operations() {
    std::vector<std::string> names;
    for (const Row& row : kOperations) names.push_back(row.name);
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
