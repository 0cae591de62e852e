// The kernels for one instruction set: this file is compiled once per instruction set, with its MATGRAD_ISA.
#include "elementwise.h"
#include "product.h"
#include "reductions.h"
#include "sparse.h"

namespace matgrad {
namespace {

template <class T, int... I>
constexpr Kernels<T> table(std::integer_sequence<int, I...>) {
    return {lanes<T>,
            {static_cast<Op>(I) == Op::power ? powers<T> : elementwise<T, static_cast<Op>(I)>...},
            product<T>,
            scratch_size<T>,
            transpose<T>,
            sparse_product<T>,
            sampled_product<T>,
            sparse_sum<T>,
            uniform<T>,
            columns_sum<T>,
            columns_max<T>,
            rows_sum<T>,
            rows_max<T>,
            gather<T>,
            scatter<T>,
            windows_max<T>,
            share<T>};
}

}  // namespace

namespace MATGRAD_ISA {

// constinit: no code for this instruction set runs before the machine is known to support it
extern const Kernels<float> single_precision;
extern const Kernels<double> double_precision;
constinit const Kernels<float> single_precision = table<float>(std::make_integer_sequence<int, elementwise_count>{});
constinit const Kernels<double> double_precision = table<double>(std::make_integer_sequence<int, elementwise_count>{});

}  // namespace MATGRAD_ISA
}  // namespace matgrad
