// Where the matrices of a program lie in memory, and which threads go through which part of them.
//
// Strips. In a network with sparse layers the batch is contiguous: a row of a matrix is one feature of all examples. A product with
// sparse weights reads rows in random order, so the examples are cut into strips, each of whole cache lines and narrow enough that
// a few thousand of its rows fit an L2 cache. A matrix whose columns are the examples is split: each strip is a block of memory of
// its own, because processors fetch the next cache line on their own, also where that belongs to another thread.
//
//     a matrix of 3 rows, split into two strips of at most `stride` examples:
//
//         block 0:  row 0 of strip 0 ···0, row 1 ···0, row 2 ···0        (···0 are zeros up to the stride)
//         block 1:  row 0 of strip 1 ···0, row 1 ···0, row 2 ···0
//
// Element (i, j) is data[offset(buffer, strip) + i * stride(buffer) + j] for an example j of the strip, and with strip 0 for every j
// of a matrix that is not split.
//
// Padding. The dense operands and the results of sparse products have rows that end with zeros, so that kernels go through them in
// whole vectors: a short row lies within a cache line, and longer rows are an odd number of lines apart, so that they do not compete
// for the same places in a cache. Matrices that have names are the caller's: they are neither padded nor split.
//
// Teams. The threads form teams. Each takes strips of its own, one after another, and goes through all layers without waiting for
// other teams; within a team each thread takes some rows of the weights. The more teams there are, the more often weights are read;
// the larger they are, the more examples come from the caches of other threads. Where there are no sparse weights, or some matrices are
// stacks of others, `examples` is 0, nothing is split and all threads are one team.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "matgrad/program.h"

namespace matgrad {

class Layout {
public:
    // `line` and `lanes` are the elements per cache line and per vector of the kernels.
    Layout(const Program& program, int threads, Index line, Index lanes);

    // Whether a value is a product with sparse weights, not with sparse examples.
    static bool is_of_weights(const Program& program, const Value& v);

    // -- matrices -----------------------------------------------------------------------------
    Index stride(int buffer) const { return places_[buffer].stride; }  // the distance between its rows
    bool is_padded(int buffer) const { return places_[buffer].is_padded; }
    bool is_split(int buffer) const { return places_[buffer].is_split; }
    Index size(int buffer) const { return places_[buffer].blocks * places_[buffer].block(); }  // in elements
    Index offset(int buffer, int strip) const {
        return is_split(buffer) ? strip * places_[buffer].block() - first_example(strip) : 0;
    }
    void add(const Shape& shape);  // one more matrix, neither padded nor split

    // -- strips -------------------------------------------------------------------------------
    Index examples() const { return examples_; }  // of a batch, or 0 if there are no products with sparse weights
    int strips() const { return strips_; }
    Index first_example(int strip) const;
    Index width(int strip) const { return first_example(strip + 1) - first_example(strip); }
    bool has_examples(const Shape& shape) const { return examples_ && (shape[0] == examples_ || shape[1] == examples_); }

    // -- threads ------------------------------------------------------------------------------
    int threads() const { return threads_; }
    int teams() const { return static_cast<int>(barriers_.size()); }
    int team(int thread) const { return static_cast<int>(((thread + 1) * barriers_.size() - 1) / threads_); }
    int strips_per_team() const { return strips_ / teams(); }
    Worker member(const Worker& worker) const;  // the same thread within its team
    void mend();                                // before a run
    void break_up();                            // ends the waiting of all teams

    // Calls f(strip, begin, end, member) for each strip of a worker's team, where [begin, end) are its examples, which the members
    // of the team share.
    template <class F>
    void for_strips(const Worker& worker, F&& f) const {
        const Worker in_team = member(worker);
        const int first = team(worker.index) * strips_per_team();
        for (int strip = first; strip < first + strips_per_team(); ++strip)
            f(strip, first_example(strip), first_example(strip + 1), in_team);
    }

    // The part of [begin, end) that belongs to a worker, in whole cache lines from `begin` on.
    std::pair<Index, Index> whole_lines(Index begin, Index end, const Worker& worker) const {
        const Index lines = (end - begin + line - 1) / line;
        return {begin + worker.begin(lines) * line, std::min(end, begin + worker.end(lines) * line)};
    }

    const Index line, lanes;

private:
    struct Place {
        Index rows, stride, blocks;
        bool is_padded, is_split;

        Index block() const { return rows * stride; }  // the elements of a block
    };

    int team_count(const Program& program) const;
    Index padded_stride(Index n) const;

    const int threads_;
    Index examples_ = 0;
    int strips_ = 0;
    std::vector<Place> places_;                       // of the buffers
    std::vector<std::unique_ptr<Barrier>> barriers_;  // one per team
};

}  // namespace matgrad
