// JSON values, as far as programs need them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace matgrad {

// A JSON value; asking it for a kind that it is not throws std::invalid_argument.
class Json {
public:
    using Array = std::vector<Json>;
    using Object = std::map<std::string, Json>;

    static Json parse(std::string_view text);

    Json() : value_(nullptr) {}
    template <class T>
    explicit Json(T value) : value_(std::move(value)) {}

    bool is_string() const { return std::holds_alternative<std::string>(value_); }
    bool is_whole() const { return std::holds_alternative<std::int64_t>(value_); }  // written as a whole number
    double number() const { return is_whole() ? static_cast<double>(std::get<std::int64_t>(value_)) : get<double>("a number"); }
    std::int64_t integer() const { return get<std::int64_t>("a whole number"); }
    const std::string& string() const { return get<std::string>("a string"); }
    const Array& array() const { return get<Array>("an array"); }
    const Object& object() const { return get<Object>("an object"); }
    bool has(const std::string& key) const { return object().count(key) > 0; }
    const Json& at(const std::string& key) const;

private:
    template <class T>
    const T& get(const char* expected) const;

    std::variant<std::nullptr_t, bool, double, std::int64_t, std::string, Array, Object> value_;
};

// The number that all of a text is, in every locale; infinite if it is too large, and nothing if it is none.
std::optional<double> parse_number(std::string_view text);

std::string json_string(const std::string& text);  // in quotes, with what JSON wants escaped

}  // namespace matgrad
