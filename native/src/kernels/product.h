// Dense products: C = β·S + α·A B.
//
// A tile of C, `panel` rows by `block` columns, is accumulated in registers, multiplying one broadcast element of A
// by a few vectors of B at a time. B is copied in blocks of `block` columns, so that it is read in order.
// There are two ways through C: one reads B once, the other writes C once, row after row:
//   - few rows (a batch times weights): for every block of B, all rows;
//   - few inner elements (the gradient of weights): for some rows, all blocks of B.
#pragma once

#include <algorithm>

#include "windows.h"

namespace matgrad {
namespace {

template <class T>
struct Blocking {
    static constexpr int vectors = 3;
    static constexpr int block = vectors * lanes<T>;
    static constexpr int panel = MATGRAD_REGISTERS == 32 ? 8 : 4;
    static constexpr Index inner = 96 * 1024 / (block * sizeof(T));  // rows of a block of B that fit the L2 cache
    static constexpr Index few = inner / 4;                          // rows of B of which `chunk` columns fit the L2 cache
    static constexpr Index chunk = 1024;                             // columns of B that are copied at once
    static constexpr Index step = inner / 2;                         // rows of windows that are copied at once
};

constexpr Index divide_up(Index a, Index b) { return (a + b - 1) / b; }

// C = β·S + α·A B for rows×columns elements; B is a copied block, A may have any strides.
template <class T, int rows, int vectors>
void multiply(Index inner, View<const T> A, const T* B, View<T> C, View<const T> S, T alpha, T beta, Index columns) {
    constexpr int L = lanes<T>;
    constexpr int block = Blocking<T>::block;
    Vector<T> sums[rows][vectors];
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) sums[i][v] = Vector<T>{};
    const T* a = A.data;
    for (Index p = 0; p < inner; ++p, a += A.column_stride, B += block) {
        Vector<T> b[vectors];
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) b[v] = load(B + v * L);
#pragma GCC unroll 8
        for (int i = 0; i < rows; ++i) {
            const Vector<T> x = broadcast(a[i * A.row_stride]);
#pragma GCC unroll 4
            for (int v = 0; v < vectors; ++v) sums[i][v] += x * b[v];
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) {
            Vector<T> result = alpha * sums[i][v];
            if (columns >= (v + 1) * L) {
                if (S.data) result += beta * load(&S(i, v * L));
                store(&C(i, v * L), result);
            } else {
                T part[2 * L] = {};
                const Index few = columns - v * L;
                if (S.data) copy_run<T, L / 2>(part, &S(i, v * L), few);
                if (S.data) result += beta * load(part);
                store(part, result);
                copy_run<T, L / 2>(&C(i, v * L), part, few);
            }
        }
}

template <class T>
using Multiply = void (*)(Index, View<const T>, const T*, View<T>, View<const T>, T, T, Index);

// `multiply` for 1, 2, … rows, with as many vectors of a block as there are columns
template <class T, int vectors, int... rows>
Multiply<T> multiply_rows(int n, std::integer_sequence<int, rows...>) {
    static constexpr Multiply<T> table[] = {multiply<T, rows + 1, vectors>...};
    return table[n - 1];
}
template <class T>
Multiply<T> multiply_for(Index rows, Index columns) {
    constexpr auto all = std::make_integer_sequence<int, Blocking<T>::panel>{};
    const int n = static_cast<int>(rows);
    if (columns <= lanes<T>) return multiply_rows<T, 1>(n, all);
    return columns <= 2 * lanes<T> ? multiply_rows<T, 2>(n, all) : multiply_rows<T, 3>(n, all);
}

// Rows [first, last) of columns [column, column + columns) of B as a block, padded with zeros.
template <class T>
void copy_block(View<const T> B, Index first, Index last, Index column, Index columns, T* out) {
    constexpr int L = lanes<T>;
    constexpr int block = Blocking<T>::block;
    if (B.column_stride == 1) {
        for (Index p = first; p < last; ++p, out += block) {
            std::copy_n(&B(p, column), columns, out);
            std::fill(out + columns, out + block, T(0));
        }
        return;
    }
    for (Index j = 0; j < block; j += L)
        for (Index p = first; p < last; p += L) {
            T* to = out + (p - first) * block + j;
            if (B.row_stride == 1 && j + L <= columns && p + L <= last) {
                transpose_block<T, lanes<T>>([&](int k) { return &B(p, column + j + k); }, to, block);
            } else {
                for (Index q = p; q < std::min(last, p + L); ++q)
                    for (Index i = j; i < j + L; ++i) out[(q - first) * block + i] = i < columns ? B(q, column + i) : T(0);
            }
        }
}

// The panel of rows of A that starts at `row`, copied if its rows are not contiguous.
template <class T>
View<const T> panel_of(View<const T> A, Index row, Index rows, Index first, Index last, T* out) {
    if (A.column_stride == 1) return {&A(row, first), rows, last - first, A.row_stride, 1};
    for (Index p = first; p < last; ++p)
        if (A.row_stride == 1)
            copy_run(out + (p - first) * rows, &A(row, p), rows);
        else
            for (Index i = 0; i < rows; ++i) out[(p - first) * rows + i] = A(row + i, p);
    return {out, rows, last - first, 1, rows};
}

template <class T>
View<T> part(View<T> X, Index row, Index column) {
    return {&X(row, column), X.rows - row, X.columns - column, X.row_stride, X.column_stride};
}

// How the work of a product is divided.
struct Split {
    Index panels, blocks, steps;  // of rows, of columns, of the inner dimension
    Index m, n, k;
    Index row(Index panel) const { return m * panel / panels; }
    Index step(Index i) const { return k * i / steps; }
};

template <class T>
Split split(Index m, Index n, Index k) {
    return {divide_up(m, Blocking<T>::panel),
            divide_up(n, Blocking<T>::block),
            std::max<Index>(1, divide_up(k, Blocking<T>::inner)),
            m,
            n,
            k};
}

template <class T>
bool writes_once(Index m, Index k) {
    return k <= Blocking<T>::few && k < m;
}

// Fetches what a tile of C will be made of into the cache, while the one before it is computed.
template <class T>
void fetch(const Product<T>& P, const Epilogue& epilogue, const Tile& tile) {
    constexpr Index line = 64 / sizeof(T);
    if (P.S.data && P.S.row_stride != 0)
        for (Index i = 0; i < tile.rows; ++i)
            for (Index j = 0; j < tile.columns; j += line) __builtin_prefetch(&P.S(tile.row + i, tile.column + j), 1);
    if (epilogue.fetch) epilogue.fetch(tile);
}

// One tile of C for one part of the inner dimension, and the epilogue after the last part.
template <class T>
void tile(const Product<T>& P, const Epilogue& epilogue, View<const T> A, const T* B, Index row, Index column, Index columns,
          bool is_first, bool is_last) {
    const Index rows = A.rows;
    View<T> C = part(P.C, row, column);
    View<const T> S = {C.data, C.rows, C.columns, C.row_stride, C.column_stride};
    if (is_first) S = P.S.data ? part(P.S, row, column) : P.S;
    multiply_for<T>(rows, columns)(A.columns, A, B, C, S, P.alpha, is_first ? P.beta : T(1), columns);
    if (is_last && epilogue.run) epilogue.run(Tile{row, column, rows, columns});
}

// For every block of B, all rows. A is small, and copied at the start if its rows are not contiguous.
template <class T>
void read_once(const Product<T>& P, const Epilogue& epilogue, T* scratch, const Worker& worker) {
    constexpr Index block = Blocking<T>::block;
    const Split s = split<T>(P.A.rows, P.B.columns, P.A.columns);
    T* own = scratch + worker.index * block * Blocking<T>::inner;
    T* shared = scratch + worker.count * block * Blocking<T>::inner;
    const bool by_rows = s.blocks < worker.count;  // too few columns to share
    const Index first = by_rows ? 0 : worker.begin(s.blocks), last = by_rows ? s.blocks : worker.end(s.blocks);
    const Index from = by_rows ? worker.begin(s.panels) : 0, to = by_rows ? worker.end(s.panels) : s.panels;
    const auto place = [&](Index q, Index i) { return shared + s.m * s.step(i) + s.row(q) * (s.step(i + 1) - s.step(i)); };
    const auto panel = [&](Index q, Index i) {
        return panel_of(P.A, s.row(q), s.row(q + 1) - s.row(q), s.step(i), s.step(i + 1), place(q, i));
    };
    if (P.A.column_stride != 1) {
        for (Index q = worker.begin(s.panels); q < worker.end(s.panels); ++q)
            for (Index i = 0; i < s.steps; ++i) panel(q, i);
        worker.wait();
    }
    for (Index b = first; b < last; ++b) {
        const Index column = b * block, columns = std::min(block, s.n - column);
        for (Index i = 0; i < s.steps; ++i) {
            copy_block(P.B, s.step(i), s.step(i + 1), column, columns, own);
            for (Index q = from; q < to; ++q) {
                const Index rows = s.row(q + 1) - s.row(q);
                const View<const T> A =
                    P.A.column_stride == 1 ? panel(q, i) : View<const T>{place(q, i), rows, s.step(i + 1) - s.step(i), 1, rows};
                tile(P, epilogue, A, own, s.row(q), column, columns, i == 0, i == s.steps - 1);
            }
        }
    }
}

// For some rows, all blocks of B, which is copied chunk by chunk.
template <class T>
void write_once(const Product<T>& P, const Epilogue& epilogue, T* scratch, const Worker& worker) {
    constexpr Index block = Blocking<T>::block;
    const Split s = split<T>(P.C.rows, P.C.columns, P.B.rows);
    const Index per_chunk = Blocking<T>::chunk / block;
    T* own = scratch + worker.index * Blocking<T>::panel * s.k;
    T* shared = scratch + worker.count * Blocking<T>::panel * s.k;
    const Epilogue none;
    const bool is_narrow = s.blocks == 1 && epilogue.run;  // some panels of whole rows are done before the epilogue
    Index done = s.row(worker.begin(s.panels));
    for (Index start = 0; start < s.blocks; start += per_chunk) {
        const Index count = std::min(per_chunk, s.blocks - start);
        const auto columns_of = [&](Index b) { return std::min(block, s.n - b * block); };
        for (Index b = start + worker.begin(count); b < start + worker.end(count); ++b)
            copy_block(P.B, 0, s.k, b * block, columns_of(b), shared + (b - start) * block * s.k);
        worker.wait();
        for (Index q = worker.begin(s.panels); q < worker.end(s.panels); ++q) {
            const Index rows = s.row(q + 1) - s.row(q);
            const View<const T> A = P.windowed == Windowed::A ? windows_of<T, Blocking<T>::panel>(P, s.row(q), rows, s.k, own)
                                                              : panel_of(P.A, s.row(q), rows, 0, s.k, own);
            for (Index b = start; b < start + count; ++b) {
                if (b + 1 < start + count) fetch(P, epilogue, {s.row(q), (b + 1) * block, A.rows, columns_of(b + 1)});
                tile(P, is_narrow ? none : epilogue, A, shared + (b - start) * block * s.k, s.row(q), b * block, columns_of(b),
                     true, true);
            }
            const Index ready = s.row(q + 1) - done;
            if (is_narrow && (q + 1 == worker.end(s.panels) || ready * s.n > Blocking<T>::chunk)) {
                epilogue.run({done, 0, ready, s.n});
                done += ready;
            }
        }
        worker.wait();
    }
}

// A B where B has windows, the gradient of weights: every worker adds up the products of its own rows of B, a step at a time, for
// which it copies some rows of all blocks.
template <class T>
void sum_windows(const Product<T>& P, const Epilogue& epilogue, T* scratch, const Worker& worker) {
    constexpr Index block = Blocking<T>::block, panel = Blocking<T>::panel, step = Blocking<T>::step;
    const Index m = P.C.rows, n = P.C.columns, k = P.A.columns, blocks = divide_up(n, block), panels = divide_up(m, panel);
    const Index size = m * blocks * block;  // of a sum of products, whose rows are whole blocks
    T *own = scratch + worker.index * size, *A = scratch + worker.count * size + worker.index * (m + block) * step,
      *B = A + m * step;
    const View<T> sum{own, m, blocks * block, blocks * block, 1};
    const bool is_near = P.A.column_stride == 1 || P.A.column_stride <= block;  // else it is copied, panel by panel
    for (Index first = worker.begin(k), end = worker.end(k); first < end; first += step) {
        const Index last = std::min(first + step, end), count = last - first;
        for (Index q = 0; q < panels && !is_near; ++q)
            panel_of(P.A, q * panel, std::min(panel, m - q * panel), first, last, A + q * panel * count);
        for (Index b = 0; b < blocks; ++b) {
            const Index column = b * block, columns = std::min(block, n - column);
            copy_windows(P, first, last, column, columns, block, B);
            for (Index q = 0; q < panels; ++q) {
                const Index row = q * panel, rows = std::min(panel, m - row);
                const View<T> C = part(sum, row, column);
                const bool is_first = first == worker.begin(k);
                const View<const T> S{is_first ? nullptr : C.data, rows, block, C.row_stride, 1};
                const Index whole = divide_up(columns, lanes<T>) * lanes<T>;
                View<const T> some{A + row * count, rows, count, 1, rows};
                if (is_near) some = {&P.A(row, first), rows, count, P.A.row_stride, P.A.column_stride};
                multiply_for<T>(rows, columns)(count, some, B, C, S, T(1), T(1), whole);
            }
        }
    }
    worker.wait();
    for (Index i = worker.begin(m); i < worker.end(m); ++i)
        for (Index j = 0; j < n; j += Blocking<T>::chunk) {
            const Index columns = std::min(n - j, Blocking<T>::chunk);
            for (Index c = j; c < j + columns; ++c) {
                T total = T(0);
                for (int w = 0; w < worker.count; ++w)
                    if (Worker{w, worker.count, nullptr}.part(k) > 0) total += scratch[w * size + i * blocks * block + c];
                P.C(i, c) = P.alpha * total + (P.S.data ? P.beta * P.S(i, c) : T(0));
            }
            if (epilogue.run) epilogue.run({i, j, 1, columns});
        }
}

// unstack(A B, P) E, the gradient of what has windows: every worker computes some rows of the result, to which it adds a few rows
// of A B at a time.
template <class T>
void add_windows(const Product<T>& P, const Epilogue& epilogue, T* scratch, const Worker& worker) {
    constexpr Index block = Blocking<T>::block, panel = Blocking<T>::panel;
    const Index n = P.B.columns, k = P.B.rows, blocks = divide_up(n, block), count = P.windows.count;
    T *B = scratch, *A = scratch + blocks * block * k + worker.index * panel * (k + blocks * block), *AB = A + panel * k;
    for (Index b = worker.begin(blocks); b < worker.end(blocks); ++b)
        copy_block(P.B, 0, k, b * block, std::min(block, n - b * block), B + b * block * k);
    worker.wait();
    for (Index row = worker.begin(P.C.rows); row < worker.end(P.C.rows); ++row) {
        T* C = &P.C(row, 0);
        std::fill_n(C, P.C.columns, T(0));
        for (Index p = 0; p < count; p += panel) {
            const Index rows = std::min(panel, count - p);
            const View<const T> some = panel_of(P.A, row * count + p, rows, 0, k, A);
            for (Index b = 0; b < blocks; ++b) {
                const Index columns = std::min(block, n - b * block);
                const View<T> result{AB + b * block, rows, block, blocks * block, 1};
                multiply_for<T>(rows, columns)(k, some, B + b * block * k, result, {}, P.alpha, T(0),
                                               divide_up(columns, lanes<T>) * lanes<T>);
            }
            for (Index i = 0; i < rows; ++i) add_runs(P.windows, p + i, AB + i * blocks * block, C);
        }
        for (Index j = 0; epilogue.run && j < P.C.columns; j += Blocking<T>::chunk)
            epilogue.run({row, j, 1, std::min(P.C.columns - j, Blocking<T>::chunk)});
    }
}

template <class T>
void product(const Product<T>& P, const Epilogue& epilogue, T* scratch, const Worker& worker) {
    if (P.windowed == Windowed::B)
        sum_windows(P, epilogue, scratch, worker);
    else if (P.windowed == Windowed::C)
        add_windows(P, epilogue, scratch, worker);
    else if (P.windowed == Windowed::A || writes_once<T>(P.C.rows, P.B.rows))
        write_once(P, epilogue, scratch, worker);
    else
        read_once(P, epilogue, scratch, worker);
}

template <class T>
Index scratch_size(Index m, Index n, Index k, int threads, Windowed windowed) {
    constexpr Index block = Blocking<T>::block, panel = Blocking<T>::panel;
    const Index padded = divide_up(n, block) * block;
    if (windowed == Windowed::B) return threads * (m * padded + (m + block) * Blocking<T>::step);
    if (windowed == Windowed::C) return padded * k + threads * panel * (k + padded);
    if (windowed == Windowed::A || writes_once<T>(m, k)) return threads * panel * k + Blocking<T>::chunk * k;
    return threads * block * Blocking<T>::inner + m * k;
}

}  // namespace
}  // namespace matgrad
