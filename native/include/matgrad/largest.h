// Where a product has its largest elements, without storing all of them.
#pragma once

#include <cstdint>
#include <vector>

#include "matgrad/kernels.h"

namespace matgrad {

// The numbers i·D + j, in increasing order, of the `count` positions with the largest |(A B)_ij|, for a K×N matrix A and an N×D
// matrix B, among those that are not `taken`; of equal values the first ones. A nan counts as infinite. There must be as many.
template <class T>
std::vector<std::int64_t> largest_products(View<const T> A, View<const T> B, const SparseIndex& taken, Index count,
                                           ThreadPool& pool, const std::string& instruction_set = "");

}  // namespace matgrad
