#include "matgrad/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <locale>
#include <sstream>

#include "matgrad/errors.h"

namespace matgrad {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The length of the number that a text begins with, as JSON writes numbers; 0 if there is none.
std::size_t number_length(std::string_view text) {
    std::size_t at = text.starts_with('-') ? 1 : 0;
    const auto digits = [&] {
        const std::size_t first = at;
        while (at < text.size() && is_digit(text[at])) ++at;
        return at > first;
    };
    const bool starts_with_zero = text.substr(at).starts_with('0');
    if (starts_with_zero ? (++at, false) : !digits()) return 0;
    if (text.substr(at).starts_with('.') && (++at, !digits())) return 0;
    if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
        if (++at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
        if (!digits()) return 0;
    }
    return at;
}

// The number of bytes of the character that a text begins with; 0 if it is not UTF-8.
std::size_t character_length(std::string_view text) {
    const auto byte = [&](std::size_t i) -> unsigned { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0; };
    const unsigned lead = byte(0);
    const std::size_t length = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
    for (std::size_t i = 1; i < length; ++i)
        if (byte(i) >> 6 != 2) return 0;
    const unsigned start = lead << 8 | byte(1);  // too short a number, a surrogate, or above U+10FFFF
    const bool is_invalid = (length == 3 && (start < 0xE0A0 || (start >= 0xEDA0 && start < 0xEE00))) ||
                            (length == 4 && (start < 0xF090 || start >= 0xF490));
    return is_invalid ? 0 : length;
}

void append_character(std::string& to, unsigned code) {
    const auto rest = [&](int shift) { to += static_cast<char>(0x80 | (code >> shift & 0x3F)); };
    if (code < 0x80) {
        to += static_cast<char>(code);
    } else if (code < 0x800) {
        to += static_cast<char>(0xC0 | code >> 6), rest(0);
    } else if (code < 0x10000) {
        to += static_cast<char>(0xE0 | code >> 12), rest(6), rest(0);
    } else {
        to += static_cast<char>(0xF0 | code >> 18), rest(12), rest(6), rest(0);
    }
}

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
    static constexpr int kMost = 1 << 20;  // values, which take much more memory than their text

    [[noreturn]] void fail(const std::string& problem) const { refuse("JSON, position " + std::to_string(at_) + ": " + problem); }
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
        if (++values_ > kMost) fail("more than " + std::to_string(kMost) + " values");
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
            if (members.count(name)) fail(readable(name) + " is there twice");
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
    // Whole numbers stay exact, if they are below 2^63. Python also writes NaN and Infinity.
    Json number() {
        constexpr double infinity = std::numeric_limits<double>::infinity();
        if (accept_word("NaN")) return Json(std::numeric_limits<double>::quiet_NaN());
        if (accept_word("Infinity")) return Json(infinity);
        if (accept_word("-Infinity")) return Json(-infinity);
        const std::string_view text = text_.substr(at_, number_length(text_.substr(at_)));
        if (text.empty()) fail("expected a value");
        at_ += text.size();
        std::int64_t whole = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), whole);
        if (error == std::errc{} && end == text.data() + text.size()) return Json(whole);
        return Json(parse_number(text).value_or(0.0));
    }
    std::string string() {
        std::string result;
        ++at_;
        while (at_ < text_.size() && text_[at_] != '"') {
            if (text_[at_] == '\\') {
                escaped(result);
                continue;
            }
            const std::size_t length = character_length(text_.substr(at_));
            if (length == 0) fail("a string is not UTF-8");
            if (static_cast<unsigned char>(text_[at_]) < 0x20) fail("a string has a control character");
            result += text_.substr(at_, length);
            at_ += length;
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
            ++at_;
            return;
        }
        unsigned code = code_unit();
        if (code >= 0xD800 && code < 0xDC00 && text_.substr(at_).starts_with("\\u")) {  // the first of a pair
            ++at_;
            const unsigned second = code_unit();
            code = second >= 0xDC00 && second < 0xE000 ? 0x10000 + (code - 0xD800) * 0x400 + second - 0xDC00 : 0xD800;
        }
        if (code >= 0xD800 && code < 0xE000) fail("half of a character");
        append_character(result, code);
    }
    // The number in u00e9.
    unsigned code_unit() {
        unsigned code = 0;
        const std::string_view digits = text_.substr(std::min(at_ + 1, text_.size()), 4);
        const char* end = digits.data() + digits.size();
        if (text_[at_] != 'u' || digits.size() < 4 || std::from_chars(digits.data(), end, code, 16).ptr != end)
            fail("unknown escape");
        at_ += 5;
        return code;
    }

    std::string_view text_;
    std::size_t at_ = 0;
    int values_ = 0;
};

}  // namespace

Json Json::parse(std::string_view text) { return Parser(text).document(); }

std::optional<double> parse_number(std::string_view text) {
    std::istringstream stream{std::string(text)};  // as std::from_chars, which some libraries do not have for double
    stream.imbue(std::locale::classic());
    double value = 0;
    stream >> std::noskipws >> value;
    if (stream.fail() && std::abs(value) == std::numeric_limits<double>::max()) return value * 2;  // infinite
    return stream.fail() || stream.peek() != std::char_traits<char>::eof() ? std::nullopt : std::optional(value);
}

template <class T>
const T& Json::get(const char* expected) const {
    if (const T* value = std::get_if<T>(&value_)) return *value;
    refuse(std::string("JSON: expected ") + expected);
}
template const double& Json::get<double>(const char*) const;
template const std::int64_t& Json::get<std::int64_t>(const char*) const;
template const std::string& Json::get<std::string>(const char*) const;
template const Json::Array& Json::get<Json::Array>(const char*) const;
template const Json::Object& Json::get<Json::Object>(const char*) const;

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
    if (found == object().end()) refuse("JSON: '" + readable(key) + "' is missing");
    return found->second;
}

}  // namespace matgrad
