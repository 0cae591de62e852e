// Programs with memory: buffers, and what is bound to them.
#include <cstring>
#include <stdexcept>

#include "typed_executor.h"

namespace matgrad {

namespace {

constexpr Index kWidest = 8;   // cache lines of a row in a strip: with more, a matrix of some thousand rows leaves the L2 cache

Index rounded_up(Index n, Index multiple) { return (n + multiple - 1) / multiple * multiple; }

}  // namespace

Executor::Implementation::Implementation(Program p, std::shared_ptr<ThreadPool> threads, Index elements)
    : program(std::move(p)), pool(std::move(threads)), line(elements) {
    for (const Value& v : program.values) {
        if (!v.operation.starts_with("sparse_")) continue;
        // every thread goes through all weights: that is worth while if each has some examples, more if there are many threads
        const Index lines = rounded_up(v.shape[1], line) / line, threads = pool->size();
        if (lines >= threads * std::max<Index>(2, threads / 2)) examples = v.shape[1];
    }
    const Index widest = kWidest * line * pool->size();
    strips = static_cast<int>((examples + widest - 1) / widest) * pool->size();
    allocate_buffers();
}

// Strips are whole cache lines wide.
Index Executor::Implementation::first_example(int strip) const {
    const Index lines = rounded_up(examples, line) / line;
    return std::min(examples, lines * strip / strips * line);
}

void Executor::Implementation::allocate_buffers() {
    const std::size_t count = program.buffers.size();
    pointers.resize(count), is_padded.resize(count), is_split.resize(count);
    for (const Value& v : program.values) {  // dense operands and results of sparse products are padded
        const bool is_product = v.operation.starts_with("sparse_"), is_sample = v.operation.starts_with("sampled_");
        if (is_product) is_padded[v.buffer] = true;
        for (std::size_t k = v.operands.size() - (is_product ? 1 : is_sample ? 2 : 0); k < v.operands.size(); ++k)
            if (const int buffer = program.values[v.operands[k]].buffer; buffer >= 0) is_padded[buffer] = true;
    }
    for (std::size_t i = 0; i < count; ++i) {
        const Buffer& buffer = program.buffers[i];
        if (!buffer.name.empty()) {
            is_padded[i] = false;
            strides.push_back(buffer.shape.empty() ? 1 : buffer.shape[1]);
            continue;
        }
        const Index rows = buffer.shape.empty() ? 1 : buffer.shape[0];
        Index columns = buffer.shape.empty() ? 1 : buffer.shape[1], blocks = 1;
        if (examples && columns == examples && rows > 1) {
            blocks = strips, columns = 0;
            for (int strip = 0; strip < strips; ++strip)
                columns = std::max(columns, first_example(strip + 1) - first_example(strip));
            is_split[i] = is_padded[i] = true;
        }
        // an odd number of lines apart, if there are several, rows do not compete for the same places in a cache
        if (is_padded[i]) columns = columns <= line ? line : (rounded_up(columns, line) / line | 1) * line;
        strides.push_back(columns);
        const std::size_t bytes = element_size(buffer.dtype) * blocks * rows * strides.back();
        owned.push_back(allocate(bytes));
        std::memset(owned.back().get(), 0, bytes);  // what is beyond the columns of a row stays 0
        pointers[i] = owned.back().get();
    }
}

int Executor::Implementation::add_buffer(const Shape& shape, const std::string& dtype) {
    program.buffers.push_back({shape, dtype, ""});
    strides.push_back(shape[1]);
    is_padded.push_back(false), is_split.push_back(false);
    owned.push_back(allocate(element_size(dtype) * shape[0] * shape[1]));
    pointers.push_back(owned.back().get());
    return static_cast<int>(pointers.size()) - 1;
}

double Executor::Implementation::read(const Scalar& scalar) const {
    if (scalar.buffer < 0) return scalar.number;
    const std::string& dtype = program.buffers[scalar.buffer].dtype;
    const void* p = pointers[scalar.buffer];
    if (dtype == "float32") return *static_cast<const float*>(p);
    if (dtype == "float64") return *static_cast<const double*>(p);
    if (dtype == "int32") return *static_cast<const std::int32_t*>(p);
    return static_cast<double>(*static_cast<const std::int64_t*>(p));
}

void Executor::Implementation::write(int buffer, double x) const {
    const std::string& dtype = program.buffers[buffer].dtype;
    void* p = pointers[buffer];
    if (dtype == "float32") *static_cast<float*>(p) = static_cast<float>(x);
    if (dtype == "float64") *static_cast<double*>(p) = x;
    if (dtype == "int32") *static_cast<std::int32_t*>(p) = static_cast<std::int32_t>(x);
    if (dtype == "int64") *static_cast<std::int64_t*>(p) = static_cast<std::int64_t>(x);
}

Executor::Executor(Program program, std::shared_ptr<ThreadPool> pool, const std::string& instruction_set)
    : seconds(program.values.size()) {
    std::string dtype;
    for (const Value& v : program.values) {
        if (v.shape.empty() || v.operation == "support") continue;
        if (dtype.empty()) dtype = v.dtype;
        if (v.dtype != dtype) throw std::invalid_argument("expected matrices of one dtype");
    }
    if (dtype == "float32")
        implementation_ = std::make_unique<TypedExecutor<float>>(std::move(program), std::move(pool), instruction_set);
    else if (dtype == "float64")
        implementation_ = std::make_unique<TypedExecutor<double>>(std::move(program), std::move(pool), instruction_set);
    else
        throw std::invalid_argument("dtype: expected float32 or float64, found " + dtype);
}

Executor::~Executor() = default;

const Program& Executor::program() const { return implementation_->program; }

void Executor::bind(const std::string& name, void* data) {
    implementation_->pointers[implementation_->program.buffer(name)] = data;
}

void Executor::bind_support(const std::string& name, const Support& support) {
    const auto found = implementation_->supports.find(name);
    if (found == implementation_->supports.end()) throw std::invalid_argument("the program has no support '" + name + "'");
    found->second = support;
}

void Executor::run() {
    for (const auto& [name, support] : implementation_->supports)
        if (!support.by_rows.starts) throw std::invalid_argument("the support '" + name + "' is not bound");
    for (std::size_t i = 0; i < implementation_->pointers.size(); ++i)
        if (!implementation_->pointers[i])
            throw std::invalid_argument("the input '" + implementation_->program.buffers[i].name + "' is not bound");
    implementation_->run(timed, seconds);
}

}  // namespace matgrad
