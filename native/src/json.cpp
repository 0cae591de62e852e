#include "matgrad/json.h"

#include <charconv>
#include <cmath>
#include <stdexcept>

namespace matgrad {

namespace {

class Parser {
public:
    explicit Parser(std::string_view text) : text_(text) {}

    Json document() {
        Json value = parse(0);
        skip_space();
        if (at_ != text_.size()) fail("expected nothing after the value");
        return value;
    }

private:
    static constexpr int kDeepest = 64;

    [[noreturn]] void fail(const std::string& problem) const {
        throw std::invalid_argument("JSON, position " + std::to_string(at_) + ": " + problem);
    }
    void skip_space() {
        while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
    }
    char peek() {
        skip_space();
        if (at_ == text_.size()) fail("it ends too early");
        return text_[at_];
    }
    bool accept(char c) {
        if (peek() != c) return false;
        ++at_;
        return true;
    }
    void expect(char c) {
        if (!accept(c)) fail(std::string("expected ") + c);
    }
    bool accept_word(std::string_view word) {
        if (text_.substr(at_, word.size()) != word) return false;
        at_ += word.size();
        return true;
    }

    Json parse(int depth) {
        if (depth > kDeepest) fail("nested too deeply");
        const char c = peek();
        if (c == '{') return object(depth);
        if (c == '[') return array(depth);
        if (c == '"') return Json(string());
        if (accept_word("true")) return Json(true);
        if (accept_word("false")) return Json(false);
        if (accept_word("null")) return Json();
        return number();
    }
    Json object(int depth) {
        Json::Object members;
        expect('{');
        if (accept('}')) return Json(std::move(members));
        do {
            if (peek() != '"') fail("expected a name");
            std::string name = string();
            expect(':');
            members[std::move(name)] = parse(depth + 1);
        } while (accept(','));
        expect('}');
        return Json(std::move(members));
    }
    Json array(int depth) {
        Json::Array items;
        expect('[');
        if (accept(']')) return Json(std::move(items));
        do items.push_back(parse(depth + 1));
        while (accept(','));
        expect(']');
        return Json(std::move(items));
    }
    // Whole numbers stay exact, if they are below 2^63.
    Json number() {
        const char *first = text_.data() + at_, *last = text_.data() + text_.size();
        double value = 0;
        const auto [end, error] = std::from_chars(first, last, value);
        if (error != std::errc{}) fail("expected a value");
        at_ = end - text_.data();
        std::int64_t whole = 0;
        const auto [whole_end, whole_error] = std::from_chars(first, last, whole);
        return whole_error == std::errc{} && whole_end == end ? Json(whole) : Json(value);
    }
    std::string string() {
        std::string result;
        for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
            if (text_[at_] == '\\')
                escaped(result);
            else
                result += text_[at_];
        }
        if (at_ == text_.size()) fail("a string is not closed");
        ++at_;
        return result;
    }
    void escaped(std::string& result) {
        static constexpr std::string_view from = "\"\\/bfnrt", to = "\"\\/\b\f\n\r\t";
        if (++at_ == text_.size()) fail("a string is not closed");
        if (const auto i = from.find(text_[at_]); i != std::string_view::npos) {
            result += to[i];
            return;
        }
        unsigned code = 0;
        const char* digits = text_.data() + at_ + 1;
        if (text_[at_] != 'u' || at_ + 4 >= text_.size() || std::from_chars(digits, digits + 4, code, 16).ptr != digits + 4)
            fail("unknown escape");
        at_ += 4;
        if (code < 0x80) {
            result += static_cast<char>(code);
        } else if (code < 0x800) {
            result += static_cast<char>(0xC0 | code >> 6);
            result += static_cast<char>(0x80 | (code & 0x3F));
        } else {
            result += static_cast<char>(0xE0 | code >> 12);
            result += static_cast<char>(0x80 | (code >> 6 & 0x3F));
            result += static_cast<char>(0x80 | (code & 0x3F));
        }
    }

    std::string_view text_;
    std::size_t at_ = 0;
};

}  // namespace

Json Json::parse(std::string_view text) { return Parser(text).document(); }

template <class T>
const T& Json::get(const char* expected) const {
    if (const T* value = std::get_if<T>(&value_)) return *value;
    throw std::invalid_argument(std::string("JSON: expected ") + expected);
}
template const double& Json::get<double>(const char*) const;
template const std::string& Json::get<std::string>(const char*) const;
template const Json::Array& Json::get<Json::Array>(const char*) const;
template const Json::Object& Json::get<Json::Object>(const char*) const;

long long Json::integer() const {
    if (is_whole()) return std::get<std::int64_t>(value_);
    const double x = number();
    if (x != std::floor(x) || std::fabs(x) > 9e15) throw std::invalid_argument("JSON: expected a whole number");
    return static_cast<long long>(x);
}

std::string json_string(const std::string& text) {
    static constexpr char digits[] = "0123456789abcdef";
    std::string result = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') result += '\\';
        if (static_cast<unsigned char>(c) >= 0x20)
            result += c;
        else
            (result += "\\u00") += {digits[c >> 4], digits[c & 15]};
    }
    return result + '"';
}

const Json& Json::at(const std::string& key) const {
    const auto found = object().find(key);
    if (found == object().end()) throw std::invalid_argument("JSON: '" + key + "' is missing");
    return found->second;
}

}  // namespace matgrad
