// Where the matrices of a program lie in memory, and which threads go through which part of them.
#include "layout.h"

#include <algorithm>

#include "operations.h"

namespace matgrad {

namespace {

constexpr Index kWidest = 8;  // cache lines per row of a strip: with more, a few thousand rows do not fit the L2 cache

Index rounded_up(Index n, Index multiple) { return (n + multiple - 1) / multiple * multiple; }

// The buffers of the dense operands and of the results of sparse products.
std::vector<bool> padded_buffers(const Program& program) {
    std::vector<bool> found(program.buffers.size());
    for (const Value& v : program.values) {
        const bool is_product = Layout::is_of_weights(program, v);
        const bool is_sample = v.operation == Op::sampled_product || v.operation == Op::sampled_sum;
        if (is_product && v.buffer >= 0) found[v.buffer] = true;
        for (std::size_t k = v.operands.size() - (is_product ? 1 : is_sample ? 2 : 0); k < v.operands.size(); ++k)
            if (const int buffer = program.values[v.operands[k]].buffer; buffer >= 0) found[buffer] = true;
    }
    return found;
}

}  // namespace

bool Layout::is_of_weights(const Program& program, const Value& v) {
    return is_sparse_product(v.operation) && program.values[v.operands[0]].name != kExamples;
}

Layout::Layout(const Program& program, int threads, Index per_line, Index per_vector)
    : line(per_line), lanes(per_vector), threads_(threads) {
    for (const Value& v : program.values)
        if (is_of_weights(program, v)) examples_ = v.shape[1];
    for (const Value& v : program.values)
        if (is_stack(v.operation)) examples_ = 0;  // there are several numbers of examples
    const int count = team_count(program);
    for (int i = 0; i < count; ++i)
        barriers_.push_back(std::make_unique<Barrier>(static_cast<int>(Worker{i, count, nullptr}.part(threads)), threads));
    const Index widest = kWidest * line * count;
    strips_ = static_cast<int>((examples_ + widest - 1) / widest) * count;
    const std::vector<bool> is_padded = padded_buffers(program);
    for (std::size_t i = 0; i < program.buffers.size(); ++i) {
        const Buffer& buffer = program.buffers[i];
        add(buffer.shape);
        Place& place = places_.back();
        if (!buffer.name.empty()) continue;
        Index columns = place.stride;
        if (examples_ && columns == examples_ && place.rows > 1) {
            place.is_split = true, place.blocks = strips_, columns = 0;
            for (int strip = 0; strip < strips_; ++strip) columns = std::max(columns, width(strip));
        }
        place.is_padded = is_padded[i] || place.is_split;
        place.stride = place.is_padded ? padded_stride(columns) : columns;
    }
}

void Layout::add(const Shape& shape) {
    places_.push_back({shape.empty() ? 1 : shape[0], shape.empty() ? 1 : shape[1], 1, false, false});
}

// The number of teams with which the slowest one takes the least time, by an estimate in which a cache line of examples times a
// weight takes 1.
int Layout::team_count(const Program& program) const {
    constexpr double kWeight = 3, kLine = 4;  // reading a weight, for a strip, and a line of examples from another cache
    constexpr double kSlowdown = 1.3, kCached = 16384;  // where a strip has more lines than this
    double weights = 0, features = 0, rows = 0;
    for (const Value& v : program.values) {
        if (!is_of_weights(program, v)) continue;
        const Shape& support = program.values[v.operands[0]].shape;
        weights += static_cast<double>(support[2]), features += static_cast<double>(support[0] + support[1]);
        rows = std::max(rows, static_cast<double>(std::max(support[0], support[1])));
    }
    const Index lines = rounded_up(examples_, line) / line;
    const auto cost = [&](int count) {
        double slowest = 0;
        for (int i = 0; i < count; ++i) {
            const Worker team{i, count, nullptr};
            const auto members = static_cast<double>(team.part(threads_)), own = static_cast<double>(team.part(lines));
            const auto strips = static_cast<double>(rounded_up(team.part(lines), kWidest) / kWidest);
            const double products =
                weights * (kWeight * strips + own) / members * (rows * own / strips > kCached ? kSlowdown : 1);
            slowest = std::max(slowest, products + (members > 1 ? kLine * features * own : 0));
        }
        return slowest;
    };
    int best = 1;
    double least = cost(best);
    for (int count = 2; count <= std::min<Index>(threads_, lines); ++count)
        if (const double time = cost(count); time < least) best = count, least = time;
    return best;
}

Index Layout::padded_stride(Index n) const {
    if (n > line) return (rounded_up(n, line) / line | 1) * line;
    Index stride = lanes;
    while (stride < n) stride *= 2;
    return stride;
}

Index Layout::first_example(int strip) const {
    const Index lines = rounded_up(examples_, line) / line;
    return std::min(examples_, lines * strip / strips_ * line);
}

Worker Layout::member(const Worker& worker) const {
    const int t = team(worker.index);
    const Worker own{t, teams(), nullptr};
    return {worker.index - static_cast<int>(own.begin(threads_)), static_cast<int>(own.part(threads_)), barriers_[t].get()};
}

void Layout::mend() {
    for (auto& barrier : barriers_) barrier->mend();
}

void Layout::break_up() {
    for (auto& barrier : barriers_) barrier->break_up();
}

}  // namespace matgrad
