// What the tasks do.
#include "tasks.h"

#include <cmath>

namespace matgrad {

namespace {

constexpr Index kFew = 128;    // elements that are added up one after another
constexpr Index kPiece = 128;  // examples that are multiplied at once
constexpr int kPieces = 32;    // of examples whose sums are added up one after another

}  // namespace

// -- operations on scalars ------------------------------------------------------------------------------------

// out = f(x), for scalars; whole numbers are computed without rounding
template <class T>
void Calculator<T>::compute_scalar(int out, Op operation, const std::vector<Scalar>& x) const {
    if (program.buffers[out].dtype.starts_with("int"))
        storage.write(out, count(operation, x));
    else
        storage.write(out, compute(operation, x));
}

// An operation on scalars, with its operands in the table's order: x and y are those that could be matrices, c is the other.
template <class T>
double Calculator<T>::compute(Op operation, const std::vector<Scalar>& operands) const {
    double x[2] = {0, 0}, c = 0;
    int count = 0;
    for (std::size_t k = 0; k < operands.size(); ++k) {
        const bool is_matrix = *row_of(operation).rules[0][k];
        (is_matrix ? x[count++] : c) = normal(storage.read<double>(operands[k]));
    }
    return library_value(operation, x[0], x[1], c);
}

// The same for whole numbers, modulo 2^64.
template <class T>
std::int64_t Calculator<T>::count(Op operation, const std::vector<Scalar>& x) const {
    const auto a = static_cast<std::uint64_t>(storage.read<std::int64_t>(x[0])),
               b = static_cast<std::uint64_t>(storage.read<std::int64_t>(x.back()));
    switch (operation) {
        case Op::add: return static_cast<std::int64_t>(a + b);
        case Op::subtract: return static_cast<std::int64_t>(a - b);
        case Op::hadamard: return static_cast<std::int64_t>(a * b);
        case Op::negative: return static_cast<std::int64_t>(-a);
        default: return static_cast<std::int64_t>(a);
    }
}

// Σ_ij x_ij in double precision, as the sum of two halves
template <class T>
double Calculator<T>::elements_sum(View<const T> X) {
    if (X.rows * X.columns > kFew) {
        const bool by_rows = X.rows > X.columns;
        View<const T> rest = X;
        Index &first = by_rows ? X.rows : X.columns, &second = by_rows ? rest.rows : rest.columns;
        first /= 2, second -= first, rest.data += first * (by_rows ? X.row_stride : X.column_stride);
        return elements_sum(X) + elements_sum(rest);
    }
    double sum = 0;
    for (Index i = 0; i < X.rows; ++i)
        for (Index j = 0; j < X.columns; ++j) sum += X(i, j);
    return sum;
}

// What the numbers of `uniform` depend on besides their positions.
template <class T>
std::uint32_t Calculator<T>::hash_key(const Scalar& seed, const Scalar& count) const {
    const auto whole_number = [this](const Scalar& x) { return static_cast<std::uint32_t>(storage.read<std::int64_t>(x)); };
    return mix(mix(whole_number(count)) ^ whole_number(seed));
}

// -- operations on elements -----------------------------------------------------------------------------------

// The present content of an operand; if it repeats a scalar, that is stored in `number`.
template <class T>
View<const T> Calculator<T>::view(const Operand& x, Index rows, Index columns, T& number, int strip) const {
    if (x.buffer >= 0) return {data(x.buffer, strip), rows, columns, x.row_stride, x.column_stride};
    number = read(x.scalar);
    return {&number, rows, columns, 0, 0};
}

// S of a product, for the examples of a strip; without data if there is none
template <class T>
View<const T> Calculator<T>::summand(const Factors& f, int strip) const {
    return {f.S.buffer < 0 ? nullptr : data(f.S.buffer, strip), f.m, f.n, f.S.row_stride, 1};
}

template <class T>
void Calculator<T>::run_group(const Group& group, const Worker& worker) const {
    if (group.by_examples) {
        layout.for_strips(worker, [&](int strip, Index begin, Index end, const Worker& member) {
            run_region(group, share(group, begin, end, member), worker.index, strip);
        });
        return;
    }
    if (group.rows >= (group.columns + layout.line - 1) / layout.line) {
        const Index row = worker.begin(group.rows);
        run_region(group, {row, 0, worker.end(group.rows) - row, group.columns}, worker.index, 0);
    } else {
        const auto [from, to] = layout.whole_lines(0, group.columns, worker);
        run_region(group, {0, from, group.rows, to - from}, worker.index, 0);
    }
}

// A member's part of the examples [begin, end) of a group: some rows of it.
template <class T>
Tile Calculator<T>::share(const Group& group, Index begin, Index end, const Worker& member) const {
    const bool are_columns = group.columns == layout.examples();
    const Index rows = are_columns ? group.rows : end - begin, first = member.begin(rows), count = member.end(rows) - first;
    return are_columns ? Tile{first, begin, count, end - begin} : Tile{begin + first, 0, count, group.columns};
}

template <class T>
void Calculator<T>::run_region(const Group& group, const Tile& region, int thread, int strip) const {
    if (group.instructions.empty() || region.rows == 0 || region.columns == 0) return;
    const Index columns = std::min(region.columns, kTile), rows = std::max<Index>(1, kTile / columns);
    for (Index i = 0; i < region.rows; i += rows)
        for (Index j = 0; j < region.columns; j += columns)
            run_tile(group,
                     {region.row + i, region.column + j, std::min(rows, region.rows - i), std::min(columns, region.columns - j)},
                     thread, strip);
}

template <class T>
void Calculator<T>::run_tile(const Group& group, const Tile& tile, int thread, int strip) const {
    T* spare = static_cast<T*>(thread_scratch[thread].get());
    for (const Instruction& instruction : group.instructions) {
        T numbers[2];
        View<const T> x = rows_of(view(instruction.x, group.rows, group.columns, numbers[0], strip), tile, spare);
        View<const T> y = rows_of(view(instruction.y, group.rows, group.columns, numbers[1], strip), tile, spare + kTile);
        const Index out_stride = layout.stride(instruction.out);
        const auto follow = [&](const View<const T>& v) { return v.row_stride == v.column_stride * tile.columns; };
        if (out_stride == tile.columns && follow(x) && follow(y))  // the rows are one
            for (View<const T>* v : {&x, &y}) v->columns *= v->rows, v->rows = 1;
        T* out = data(instruction.out, strip) + tile.row * out_stride + tile.column;
        kernels.elementwise[static_cast<int>(instruction.operation)](out, out_stride, x, y, read(instruction.c));
    }
}

// Brings the tile of all operands into the cache, except one that the product before the group has there already.
template <class T>
void Calculator<T>::fetch_tile(const Group& group, const Tile& tile, int known) const {
    for (const Instruction& instruction : group.instructions)
        for (const Operand& x : {direct(instruction.out), instruction.x, instruction.y}) {
            if (x.buffer < 0 || x.buffer == known || x.column_stride != 1 || x.row_stride == 0) continue;
            const T* first = data(x.buffer) + tile.row * x.row_stride + tile.column;
            for (Index i = 0; i < tile.rows; ++i)
                for (Index j = 0; j < tile.columns; j += layout.line) __builtin_prefetch(first + i * x.row_stride + j, 1);
        }
}

// A tile of a matrix whose rows are contiguous or repeat one element; other rows are copied to `spare`.
template <class T>
View<const T> Calculator<T>::rows_of(const View<const T>& X, const Tile& tile, T* spare) const {
    if (X.column_stride <= 1) return {&X(tile.row, tile.column), tile.rows, tile.columns, X.row_stride, X.column_stride};
    for (Index i = 0; i < tile.rows; ++i)
        for (Index j = 0; j < tile.columns; ++j) spare[i * tile.columns + j] = X(tile.row + i, tile.column + j);
    return {spare, tile.rows, tile.columns, tile.columns, 1};
}

// -- sums over examples -----------------------------------------------------------------------------------------

// out = β·C + α·(A Bᵀ at the stored elements [first, last) of W), without β·C if there is no C, summed over the examples of
// the pieces [from, to), counted round; of many pieces it is the sum of two halves, for precision. A piece is a strip or, where
// threads do not take their own examples, kPiece examples.
template <class T>
void Calculator<T>::sample(T* out, T beta, const T* C, T alpha, const Sampled& S, int from, int to, Index first,
                           Index last) const {
    if (to - from > kPieces) {
        const int middle = from + (to - from) / 2;
        std::vector<T> rest(last - first);
        sample(out, beta, C, alpha, S, from, middle, first, last);
        sample(rest.data(), T(0), nullptr, alpha, S, middle, to, first, last);
        for (Index p = 0; p < last - first; ++p) out[p] += rest[p];
        return;
    }
    const Index n = program.buffers[S.B].shape[1];
    for (int k = from; k < to; ++k) {
        const int strip = n == layout.examples() ? k % layout.strips() : 0;
        const Index start = n == layout.examples() ? 0 : k * kPiece;
        const Index columns = n == layout.examples() ? layout.width(strip) : std::min(kPiece, n - start);
        const Padded<T> A = padded(S.A, strip), B = padded(S.B, strip);
        const Sample<T> operands{*S.W, {A.data + start, A.stride}, {B.data + start, B.stride}};
        kernels.sampled_product(out, k > from ? T(1) : beta, k > from ? out : C, alpha, operands, columns, first, last);
    }
}

// out = β·C + α·(A Bᵀ at the stored elements of W), without β·C if C is -1. Each thread takes some of the elements and sums over
// all examples, the strips of its team first, which are in its cache.
template <class T>
void Calculator<T>::sample_by_elements(int out, T beta, int C, T alpha, const Sampled& S, const Worker& worker) const {
    const Index size = S.W->starts[S.W->rows], first = worker.begin(size), last = worker.end(size);
    const Index n = program.buffers[S.B].shape[1];
    const int count = n == layout.examples() ? layout.strips() : static_cast<int>((n + kPiece - 1) / kPiece);
    const int own = n == layout.examples() ? layout.team(worker.index) * layout.strips_per_team() : 0;
    sample(data(out) + first, beta, C < 0 ? nullptr : data(C) + first, alpha, S, own, own + count, first, last);
}

// The same. Each team sums over its own examples, one chunk of elements at a time, and then each thread adds up the sums of all
// teams for its part of the chunk.
template <class T>
void Calculator<T>::sample_by_examples(int out, T beta, int C, T alpha, const Sampled& S, const Worker& worker) const {
    const auto each = [this](Op operation, T* out, const T* x, const T* y, T c, Index n) {
        kernels.elementwise[static_cast<int>(operation)](out, n, {x, 1, n, n, 1}, {y, 1, n, n, 1}, c);
    };
    const Index size = S.W->starts[S.W->rows];
    const int count_of_teams = layout.teams(), own = layout.team(worker.index), per_team = layout.strips_per_team();
    const Worker in_team = layout.member(worker);
    const Index chunk = chunk_size();
    for (Index first = 0; first < size; first += chunk) {
        const Index count = std::min(chunk, size - first);
        T* sums = static_cast<T*>(scratch.get()) + first / chunk % 2 * count_of_teams * chunk;  // alternate halves
        const Index from = in_team.begin(count), to = in_team.end(count);
        sample(sums + own * chunk + from, T(0), nullptr, T(1), S, own * per_team, (own + 1) * per_team, first + from, first + to);
        worker.wait();
        const Index start = worker.begin(count), part = worker.end(count) - start;
        T* result = data(out) + first + start;
        const T* before = C < 0 ? nullptr : data(C) + first + start;
        if (before && beta != 1) each(Op::scale, result, before, before, beta, part);
        for (int i = 0; i < count_of_teams; ++i) {
            const T* sum = sums + i * chunk + start;
            if (i == 0 && !before)
                each(Op::scale, result, sum, sum, alpha, part);
            else
                each(Op::add_scaled, result, i == 0 && beta == 1 ? before : result, sum, alpha, part);
        }
    }
}

// out = rows_sum(x), for a matrix that is split
template <class T>
void Calculator<T>::sum_by_examples(int out, int x, const Worker& worker) const {
    const Index rows = program.buffers[x].shape[0];
    T* sums = static_cast<T*>(scratch.get());
    layout.for_strips(worker, [&](int strip, Index begin, Index end, const Worker& member) {
        const View<const T> X{data(x, strip) + begin, rows, end - begin, layout.stride(x), 1};
        kernels.rows_sum(sums + strip * rows, 1, X, member.begin(rows), member.end(rows));
    });
    worker.wait();
    kernels.rows_sum(data(out), layout.stride(out), {sums, rows, layout.strips(), 1, rows}, worker.begin(rows), worker.end(rows));
}

template class Calculator<float>;
template class Calculator<double>;

}  // namespace matgrad
