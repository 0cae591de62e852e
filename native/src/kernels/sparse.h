// Products with sparse matrices. The batch is contiguous: a row of B holds one feature of all examples.
//
// Rows are padded with zeros to whole vectors, `stride` elements. The elements of a row of the result, or as
// many of them as there are registers for, are accumulated in registers.
#pragma once

#include <algorithm>
#include <type_traits>

#include "vector.h"

namespace matgrad {
namespace {

constexpr int kAccumulators = 8;

// Calls f(std::integral_constant<int, count>{}).
template <class F, int... I>
inline void with_count(int count, F&& f, std::integer_sequence<int, I...>) {
    ((count == I + 1 ? (f(std::integral_constant<int, I + 1>{}), 0) : 0), ...);
}

// Of every four elements, alternately the sum of two elements of a and of two elements of b
template <class T, int... I>
inline Vector<T> folded(Vector<T> a, Vector<T> b, std::integer_sequence<int, I...>) {
    return __builtin_shufflevector(a, b, (I / 4 * 4 + I % 4 / 2 + I % 2 * lanes<T>)...) +
           __builtin_shufflevector(a, b, (I / 4 * 4 + I % 4 / 2 + 2 + I % 2 * lanes<T>)...);
}

// The sums of the elements of four vectors; folded twice, their parts are in the order (a, c, b, d), again and again
template <class T>
inline Vector<T, 4> sums_of(Vector<T> a, Vector<T> b, Vector<T> c, Vector<T> d) {
    constexpr auto all = std::make_integer_sequence<int, lanes<T>>{};
    const Vector<T, 4> x = sum_of_fours<T, lanes<T>>(folded<T>(folded<T>(a, b, all), folded<T>(c, d, all), all));
    return __builtin_shufflevector(x, x, 0, 2, 1, 3);
}

// A few vectors of a row.
template <class T, int count>
struct Vectors {
    static constexpr int size = count;
    static constexpr int ahead = std::max(12, 32 / count);  // how many elements ahead their rows are fetched into the cache
    Vector<T> vectors[count];

    static void fetch(const T* p) {
        for (int i = 0; i < count * MATGRAD_VECTOR_BYTES; i += 64) __builtin_prefetch(reinterpret_cast<const char*>(p) + i);
    }
    static Vectors loaded(const T* p) {
        Vectors x;
#pragma GCC unroll 8
        for (int v = 0; v < count; ++v) x.vectors[v] = load(p + v * lanes<T>);
        return x;
    }
    // The padding in the last vector becomes 0, even if a sum is not finite.
    void store_elements(T* p, Vector<T> is_element) {
        vectors[count - 1] = is_element > 0 ? vectors[count - 1] : Vector<T>{};
        store_all(p);
    }
    void store_all(T* p) const {
#pragma GCC unroll 8
        for (int v = 0; v < count; ++v) store(p + v * lanes<T>, vectors[v]);
    }
    void scale(T c) {
        for (int v = 0; v < count; ++v) vectors[v] *= c;
    }
    void add(const Vectors& x) {
        for (int v = 0; v < count; ++v) vectors[v] += x.vectors[v];
    }
    // this + w·p
    void add(T w, const T* p) {
#pragma GCC unroll 8
        for (int v = 0; v < count; ++v) vectors[v] += w * load(p + v * lanes<T>);
    }
    // Σ_j x_j·p_j as a vector of sums
    Vector<T> times(const T* p) const {
        Vector<T> sum = vectors[0] * load(p);
#pragma GCC unroll 8
        for (int v = 1; v < count; ++v) sum += vectors[v] * load(p + v * lanes<T>);
        return sum;
    }
};

// Calls f(Vectors<T, …>, start) for the vectors of a row of n elements, a few at a time.
template <class T, class F>
inline void in_passes(Index n, F&& f) {
    const Index vectors = (n + lanes<T> - 1) / lanes<T>, passes = (vectors + kAccumulators - 1) / kAccumulators;
    for (Index pass = 0; pass < passes; ++pass) {
        const Index from = vectors * pass / passes, to = vectors * (pass + 1) / passes;
        with_count(
            static_cast<int>(to - from),
            [&](auto count) { f(std::type_identity<Vectors<T, decltype(count)::value>>{}, from * lanes<T>); },
            std::make_integer_sequence<int, kAccumulators>{});
    }
}

// The elements from `start` on of rows of W B, which have n elements
template <class T, class V>
void sum_rows(Padded<T> out, const SparseIndex& W, const T* values, Padded<const T> B, Index start, Index n, Index first,
              Index last) {
    const Index end = W.starts[last];
    Vector<T> is_element;  // of the last vector
    for (int l = 0; l < lanes<T>; ++l) is_element[l] = start + (V::size - 1) * lanes<T> + l < n;
    const auto row = [&](Index p) { return B.data + static_cast<Index>(W.columns[p]) * B.stride + start; };
    const auto add = [&](V& sums, Index p) {
        if (p + V::ahead < end) {
            V::fetch(row(p + V::ahead));
            if (W.positions) __builtin_prefetch(values + W.positions[p + V::ahead]);
        }
        sums.add(values[W.positions ? W.positions[p] : p], row(p));
    };
    constexpr int sets =
        V::size < 4 ? 4 / V::size : 1;  // of sums, because an addition has to wait for the last one to the same sum
    for (Index i = first; i < last; ++i) {
        V sums[sets] = {};
        Index p = W.starts[i];
        for (; p + sets <= W.starts[i + 1]; p += sets)
#pragma GCC unroll 4
            for (int s = 0; s < sets; ++s) add(sums[s], p + s);
        for (; p < W.starts[i + 1]; ++p) add(sums[0], p);
        for (int s = 1; s < sets; ++s) sums[0].add(sums[s]);
        sums[0].store_elements(out.data + i * out.stride + start, is_element);
    }
}

template <class T>
void sparse_product(Padded<T> out, const SparseIndex& W, const T* values, Padded<const T> B, Index n, Index first, Index last) {
    in_passes<T>(n, [&](auto vectors, Index start) {
        sum_rows<T, typename decltype(vectors)::type>(out, W, values, B, start, n, first, last);
    });
}

// The elements [start, start + V::size·lanes) of rows of a sum
template <class T, class V>
void add_rows(const SparseSum<T>& sum, Index start, Index first, Index last) {
    const SparseIndex& A = sum.A;
    const Index end = A.starts[last];
    const bool keeps_empty = sum.C.data == sum.out.data && sum.beta == 1 && std::isfinite(sum.alpha);
    const auto row = [&](Index p) { return &sum.B(A.columns[p], start); };
    for (Index i = first; i < last; ++i) {
        if (keeps_empty && A.starts[i] == A.starts[i + 1]) continue;
        V sums = {};
        for (Index p = A.starts[i]; p < A.starts[i + 1]; ++p) {
            if (p + V::ahead < end) V::fetch(row(p + V::ahead));
            sums.add(sum.values[A.positions ? A.positions[p] : p], row(p));
        }
        sums.scale(sum.alpha);
        if (sum.C.data) sums.add(sum.beta, &sum.C(i, start));
        sums.store_all(&sum.out(i, start));
    }
}

// The same for one element of each row
template <class T>
void add_elements(const SparseSum<T>& sum, Index j, Index first, Index last) {
    const SparseIndex& A = sum.A;
    for (Index i = first; i < last; ++i) {
        T x = 0;
        for (Index p = A.starts[i]; p < A.starts[i + 1]; ++p)
            x += sum.values[A.positions ? A.positions[p] : p] * sum.B(A.columns[p], j);
        sum.out(i, j) = sum.alpha * x + (sum.C.data ? sum.beta * sum.C(i, j) : T(0));
    }
}

template <class T>
void sparse_sum(const SparseSum<T>& sum, Index first, Index last) {
    const Index n = sum.out.columns, whole = n / lanes<T> * lanes<T>;
    in_passes<T>(whole,
                 [&](auto vectors, Index start) { add_rows<T, typename decltype(vectors)::type>(sum, start, first, last); });
    for (Index j = whole; j < n; ++j) add_elements(sum, j, first, last);
}

// out = β·C + α·Σ_j a_ij·b_kj over the elements j from `start` on, for the stored elements [first, last) of W
template <class T, class V>
void sample_elements(T* out, T beta, const T* C, T alpha, const Sample<T>& sample, Index start, Index first, Index last) {
    const SparseIndex& W = sample.W;
    const auto row = [&](Index p) { return sample.B.data + static_cast<Index>(W.columns[p]) * sample.B.stride + start; };
    Index i = std::upper_bound(W.starts, W.starts + W.rows + 1, first) - W.starts - 1;  // the row of the first element
    for (Index p = first; p < last; ++i) {
        const V a = V::loaded(sample.A.data + i * sample.A.stride + start);
        const Index end = std::min<Index>(last, W.starts[i + 1]);
        if constexpr (lanes<T> >= 4)
            for (; p + 4 <= end; p += 4) {
                for (int k = V::ahead; k < V::ahead + 4; ++k)
                    if (p + k < last) V::fetch(row(p + k));
                const Vector<T, 4> dots =
                    alpha * sums_of<T>(a.times(row(p)), a.times(row(p + 1)), a.times(row(p + 2)), a.times(row(p + 3)));
                store<T, 4>(out + p - first, C ? beta * load<T, 4>(C + p - first) + dots : dots);
            }
        for (; p < end; ++p) {
            if (p + V::ahead < last) V::fetch(row(p + V::ahead));
            const T dot = alpha * sum_of<T>(a.times(row(p)));
            out[p - first] = C ? beta * C[p - first] + dot : dot;
        }
    }
}

template <class T>
void sampled_product(T* out, T beta, const T* C, T alpha, const Sample<T>& sample, Index n, Index first, Index last) {
    in_passes<T>(n, [&](auto vectors, Index start) {  // the later passes add to the result of the first one
        sample_elements<T, typename decltype(vectors)::type>(out, start ? T(1) : beta, start ? out : C, alpha, sample, start,
                                                             first, last);
    });
}

}  // namespace
}  // namespace matgrad
