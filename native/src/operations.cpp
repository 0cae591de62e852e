#include "operations.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "matgrad/errors.h"

namespace matgrad {

namespace {

// What the letters of a rule stand for so far; 0 is nothing.
struct Sizes {
    Index letters[128] = {};
    const Shape* any = nullptr;                             // that of "*"
    std::vector<std::pair<const char*, Index>> products{};  // "np]", and the size that it must be

    Index& operator[](char letter) { return letters[static_cast<int>(letter)]; }

    // Whether a shape matches a pattern, where products are left for later
    bool match(const char* pattern, const Shape& shape) {
        if (*pattern == '*') {
            if (!any) any = &shape;
            return shape.size() != 3 && shape == *any;
        }
        for (Index n : shape) {
            if (!*pattern) return false;
            if (*pattern == '[') {
                products.emplace_back(++pattern, n);
                pattern = std::strchr(pattern, ']') + 1;
                continue;
            }
            Index& known = (*this)[*pattern++];
            if (!known) known = n;
            if (known != n) return false;
        }
        return !*pattern;
    }

    // Whether the products are what they must be, each time of those with at most one letter that is not known
    bool solve() {
        while (!products.empty()) {
            const std::size_t before = products.size();
            for (std::size_t k = 0; k < products.size();) {
                Index rest = products[k].second, unknown = 0;
                char last = 0;
                for (const char* letter = products[k].first; *letter != ']'; ++letter) {
                    const Index known = (*this)[*letter];
                    if (!known)
                        ++unknown, last = *letter;
                    else if (rest % known)
                        return false;
                    else
                        rest /= known;
                }
                if (unknown > 1) {
                    ++k;
                    continue;
                }
                if (unknown)
                    (*this)[last] = rest;
                else if (rest != 1)
                    return false;
                products.erase(products.begin() + static_cast<std::ptrdiff_t>(k));
            }
            if (products.size() == before) return false;
        }
        return true;
    }

    // The product of all letters: the multiplications of a product
    Index product() const {
        Index found = 1;
        for (Index n : letters)
            if (n) found = checked_product({found, n});
        return found;
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
        if (k < operands.size() || rule[k + 1] || !sizes.match(rule[k], result) || !sizes.solve()) continue;
        const bool is_product = row.kind == Kind::product && !is_one_hot(operation);
        Index most = is_product                 ? sizes.product()
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
