#include "matgrad/largest.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <numeric>

namespace matgrad {

namespace {

constexpr Index kElements = 1 << 20;  // of the product that are stored at once
constexpr Index kRows = 8;            // that are multiplied at once, even if they are long
constexpr int kFractionBits = 5;      // of a score, by which it is counted

template <class T>
struct Candidate {
    T score;
    std::int64_t position;
    bool operator<(const Candidate& other) const {  // whether it is the better one
        return score != other.score ? score > other.score : position < other.position;
    }
};

// How many scores there are of each order of magnitude: with the same exponent and the same first bits of the fraction.
template <class T>
class Histogram {
public:
    void add(T score) { ++counts_[std::bit_cast<Bits>(score) >> kShift]; }
    void add(const Histogram& other) {
        for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
    }
    // A number such that at least `count` scores are as large, as large as it can be told; 0 if there are not that many.
    T least_of(Index count) const {
        Index found = 0;
        for (std::size_t i = counts_.size(); i-- > 0;)
            if ((found += counts_[i]) >= count) return std::bit_cast<T>(static_cast<Bits>(i) << kShift);
        return 0;
    }

private:
    using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    static constexpr int kShift = std::numeric_limits<T>::digits - 1 - kFractionBits;
    std::vector<Index> counts_ = std::vector<Index>(std::size_t(1) << (8 * sizeof(T) - 1 - kShift));
};

// Those of the elements that a thread has looked at which may be among the best of all.
template <class T>
struct Candidates {
    std::vector<Candidate<T>> list;
    Histogram<T> histogram;
    T least = 0;      // what is smaller is not among the best
    Index added = 0;  // since that was found out

    void add(T score, std::int64_t position, Index count) {
        if (score < least) return;
        list.push_back({score, position});
        histogram.add(score);
        if (++added > count / 4 + 256) raise(histogram.least_of(count));
    }
    void raise(T bound) {
        least = std::max(least, bound);
        added = 0;
        std::erase_if(list, [&](const Candidate<T>& x) { return x.score < least; });
    }
};

// An upper bound of the norm of n elements from the sum of their squares, also if squares underflow; infinite for nan.
double norm(double sum, Index n) {
    return std::isnan(sum) ? std::numeric_limits<double>::infinity() : std::sqrt(sum + n * std::numeric_limits<double>::min());
}

// The norms of the rows of X
template <class T>
std::vector<double> row_norms(View<const T> X) {
    std::vector<double> norms(X.rows);
    for (Index i = 0; i < X.rows; ++i) {
        double sum = 0;
        for (Index j = 0; j < X.columns; ++j) sum += double(X(i, j)) * X(i, j);
        norms[i] = norm(sum, X.columns);
    }
    return norms;
}

// The largest norm of a column of X
template <class T>
double largest_column_norm(View<const T> X) {
    std::vector<double> sums(X.columns);
    for (Index i = 0; i < X.rows; ++i)
        for (Index j = 0; j < X.columns; ++j) sums[j] += double(X(i, j)) * X(i, j);
    double largest = 0;
    for (const double sum : sums) largest = std::max(largest, norm(sum, X.rows));
    return largest;
}

// Memory for some elements, which is kept for the next call: new memory would take longer to get than to fill.
template <class T>
T* workspace(Index elements) {
    thread_local std::unique_ptr<T[]> memory;
    thread_local Index size = 0;
    if (size < elements) {
        memory.reset();
        memory.reset(new T[elements]);
        size = elements;
    }
    return memory.get();
}

// Looks at a row of the product.
template <class T>
void look(Candidates<T>& found, T* scores, Index row, Index D, const SparseIndex& taken, Index count) {
    for (Index j = 0; j < D; ++j) scores[j] = std::fabs(scores[j]);
    for (std::int64_t p = taken.starts[row]; p < taken.starts[row + 1]; ++p) scores[taken.columns[p]] = T(-1);
    constexpr Index part = 32;  // elements, of which most often none matters
    for (Index start = 0; start < D; start += part) {
        const Index end = std::min(D, start + part);
        int is_any = 0;
        for (Index j = start; j < end; ++j) is_any |= !(scores[j] < found.least);
        if (!is_any) continue;
        for (Index j = start; j < end; ++j)
            if (!(scores[j] < found.least))
                found.add(std::isnan(scores[j]) ? std::numeric_limits<T>::infinity() : scores[j], row * D + j, count);
    }
}

}  // namespace

template <class T>
std::vector<std::int64_t> largest_products(View<const T> A, View<const T> B, const SparseIndex& taken, Index count,
                                           ThreadPool& pool, const std::string& instruction_set) {
    if (count == 0) return {};
    const Index K = A.rows, N = A.columns, D = B.columns;
    const Kernels<T>& kernel = kernels<T>(instruction_set);
    const std::vector<double> norms = row_norms(A);
    const double largest = largest_column_norm(B) * 1.001;  // |(A B)_ij| ≤ ‖a_i‖·‖b_j‖, with room for rounding
    std::vector<Index> order(K);                            // long rows first: then short ones cannot matter
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](Index i, Index k) { return norms[i] > norms[k]; });
    std::vector<T> sorted(K * N);
    for (Index i = 0; i < K; ++i)
        for (Index n = 0; n < N; ++n) sorted[i * N + n] = A(order[i], n);

    const Index most = std::min(K, std::max(kRows, kElements / D));
    const Index elements = most * D;
    T* const C = workspace<T>(elements + kernel.scratch_size(most, D, N, pool.size(), Windowed::none) + 64 / sizeof(T));
    T* const scratch = C + elements;
    std::vector<Candidates<T>> found(pool.size());
    T least = 0;
    for (Index start = 0; start < K && !(norms[order[start]] * largest < least); start += most) {
        const Index rows = std::min(most, K - start);
        const Product<T> P{
            {sorted.data() + start * N, rows, N, N, 1}, B, {C, rows, D, D, 1}, {nullptr, rows, D, 0, 1}, T(1), T(0)};
        pool.run([&](const Worker& worker) {
            kernel.product(P, {}, scratch, worker);
            worker.wait();
            for (Index i = worker.begin(rows); i < worker.end(rows); ++i)
                look(found[worker.index], C + i * D, order[start + i], D, taken, count);
        });
        Histogram<T> all;
        for (const Candidates<T>& part : found) all.add(part.histogram);
        least = all.least_of(count);
        for (Candidates<T>& part : found) part.raise(least);
    }

    std::vector<Candidate<T>> best;
    for (const Candidates<T>& part : found) best.insert(best.end(), part.list.begin(), part.list.end());
    std::nth_element(best.begin(), best.begin() + (count - 1), best.end());
    std::vector<std::int64_t> positions(count);
    std::transform(best.begin(), best.begin() + count, positions.begin(), [](const Candidate<T>& x) { return x.position; });
    std::sort(positions.begin(), positions.end());
    return positions;
}

template std::vector<std::int64_t> largest_products(View<const float>, View<const float>, const SparseIndex&, Index, ThreadPool&,
                                                    const std::string&);
template std::vector<std::int64_t> largest_products(View<const double>, View<const double>, const SparseIndex&, Index,
                                                    ThreadPool&, const std::string&);

}  // namespace matgrad
