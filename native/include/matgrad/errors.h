// Errors in one line that name the thing.
#pragma once

#include <stdexcept>
#include <string>

#include "matgrad/json.h"

namespace matgrad {

[[noreturn]] inline void refuse(const std::string& problem) { throw std::invalid_argument(problem); }

// A name from a file in a message: in one line, and not too long.
inline std::string readable(const std::string& name) {
    constexpr std::size_t longest = 80;
    std::string text = json_string(name.substr(0, 2 * longest));
    text = text.substr(1, text.size() - 2);
    if (text.size() <= longest) return text;
    std::size_t end = longest;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // at the start of a character
    return text.substr(0, end) + "…";
}

// The result of the function; its errors begin with what they are about, once.
template <class Function>
auto about(const std::string& what, Function function) {
    try {
        return function();
    } catch (const std::invalid_argument& error) {
        const std::string message = error.what();
        refuse(message.starts_with(what + ": ") ? message : what + ": " + message);
    }
}

}  // namespace matgrad
