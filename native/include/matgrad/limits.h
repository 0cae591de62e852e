// Limits on what a program or a file may ask for, so that a few bytes cannot ask for everything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace matgrad {

// The memory of a program in bytes, and its work per run: elements that are computed, and multiplications of products.
struct Limits {
    std::ptrdiff_t memory, work;

    // The machine's or the container's memory; MATGRAD_MEMORY_LIMIT, such as 8G, and MATGRAD_WORK_LIMIT replace the limits.
    static Limits of_machine();
    // For a file of so many bytes: memory and work in proportion, unless these variables say otherwise.
    static Limits of_file(std::uintmax_t bytes);

    // Both throw std::invalid_argument if it is too much; `what` begins the message.
    void check_memory(std::ptrdiff_t bytes, const std::string& what) const;
    void check_work(std::ptrdiff_t work, const std::string& what) const;
};

// The product or sum of numbers from 0 on; the largest number if the result is larger.
std::ptrdiff_t checked_product(std::initializer_list<std::ptrdiff_t> factors);
std::ptrdiff_t checked_sum(std::ptrdiff_t a, std::ptrdiff_t b);

}  // namespace matgrad
