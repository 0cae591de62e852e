// Reads programs and checks that they are sound: what is accepted here can be planned and run without further checks.
#include "matgrad/program.h"

#include <limits>

#include "matgrad/errors.h"
#include "operations.h"

namespace matgrad {

namespace {

constexpr int kFormat = 2;
constexpr std::size_t kMostValues = 100'000;
constexpr std::size_t kMostBases = 16;
constexpr Index kLargest = std::numeric_limits<std::int32_t>::max();  // size: indices of sparse matrices have 32 bits

Index size_of(const Json& size) {
    const std::int64_t n = size.integer();
    if (n < 1 || n > kLargest) refuse("expected a size from 1 to " + std::to_string(kLargest) + ", found " + std::to_string(n));
    return static_cast<Index>(n);
}

int index_of(const Json& index, std::size_t count, const char* what) {
    const std::int64_t k = index.integer();
    if (k < 0 || k >= static_cast<std::int64_t>(count))
        refuse("there is no " + std::string(what) + " " + std::to_string(k) + " before it");
    return static_cast<int>(k);
}

}  // namespace

// Goes through the description of a program once, and knows at every value what is in memory then.
class ProgramReader {
public:
    ProgramReader(Program& program, const Json& description) : program_(program), names_(description.at("sizes")) {
        if (description.at("format").integer() != kFormat) refuse("expected a program of format " + std::to_string(kFormat));
        for (const auto& [name, size] : names_.object()) about("size " + readable(name), [&] { size_of(size); });
        for (const Json& line : description.at("buffers").array())
            about("buffer " + std::to_string(program_.buffers.size()), [&] { read_buffer(line); });
        if (program_.dtype.empty()) refuse("expected a program with a matrix, found none");
        for (const Json& line : description.at("values").array())
            about("value " + std::to_string(program_.values.size()), [&] { read_value(line); });
        for (const Json& pair : description.at("copies").array())
            about("copy " + std::to_string(program_.copies.size()), [&] { read_copy(pair.array()); });
        for (const auto& [name, index] : description.at("outputs").object())
            about("output " + readable(name), [&] { check_output(name, index); });
        if (program_.values.empty()) refuse("expected values, found none");
        if (program_.has_sparse_examples()) check_examples();
    }

private:
    Shape shape_of(const Json& sizes) const {
        Shape shape;
        for (const Json& size : sizes.array()) shape.push_back(size_of(size.is_string() ? names_.at(size.string()) : size));
        if (shape.size() != 0 && shape.size() != 2 && shape.size() != 3) refuse("expected a matrix, a scalar or a support");
        return shape;
    }

    void take_memory(Index bytes) {
        memory_ = checked_sum(memory_, bytes);
        program_.limits.check_memory(memory_, "the program");
    }
    void take_work(Index work) {
        work_ = checked_sum(work_, work);
        program_.limits.check_work(work_, "the program");
    }

    // All matrices have one dtype.
    void check_dtype(const Shape& shape, const std::string& dtype) {
        element_size(dtype);
        if (shape.empty()) return;
        if (program_.dtype.empty()) program_.dtype = dtype;
        if (!is_float(dtype)) refuse("expected a matrix of float32 or float64, found " + dtype);
        if (dtype != program_.dtype) refuse("expected a matrix of " + program_.dtype + " as before, found " + dtype);
    }

    void read_buffer(const Json& line) {
        Buffer buffer{shape_of(line.at("shape")), line.at("dtype").string(), line.has("name") ? line.at("name").string() : ""};
        if (buffer.shape.size() == 3) refuse("expected a matrix or a scalar");
        check_dtype(buffer.shape, buffer.dtype);
        const Index size = static_cast<Index>(element_size(buffer.dtype));
        take_memory(buffer.shape.empty() ? size : checked_product({size, buffer.shape[0], buffer.shape[1]}));
        const int index = static_cast<int>(program_.buffers.size());
        if (!buffer.name.empty() && !program_.named_.emplace(buffer.name, index).second)
            refuse("a second buffer called " + readable(buffer.name));
        program_.buffers.push_back(std::move(buffer));
        held_.push_back(-1);
    }

    void read_value(const Json& line) {
        if (program_.values.size() == kMostValues) refuse("expected at most " + std::to_string(kMostValues) + " values");
        Value value{.operation = operation_of(line.at("operation").string()),
                    .shape = shape_of(line.at("shape")),
                    .dtype = line.at("dtype").string()};
        if (line.has("name")) value.name = line.at("name").string();
        if (line.has("equation")) value.equation = line.at("equation").string();
        const Row& operation = row_of(value.operation);
        for (const Json& operand : line.at("operands").array())
            value.operands.push_back(index_of(operand, program_.values.size(), "value"));
        read_number(value, line);
        check_types(value, operation);
        if (operation.kind == Kind::view) {
            bases_.push_back(bases_[value.operands[0]]);
        } else if (is_deferrable(value) && !line.has("buffer")) {
            read_deferred(value);
        } else {
            bases_.push_back({static_cast<int>(program_.values.size())});
            if (value.operation == Op::support)
                read_support(value);
            else if (value.operation != Op::number)
                read_place(value, operation, line);
        }
        program_.values.push_back(std::move(value));
    }

    void read_number(Value& value, const Json& line) const {
        if (line.has("number") != (value.operation == Op::number))
            refuse("a number belongs to the operation 'number', and to no other");
        if (!line.has("number")) return;
        const Json& written = line.at("number");
        const Json& number = written.is_string() ? names_.at(written.string()) : written;
        value.number = number.is_whole() ? Number(number.integer()) : Number(number.number());
        if (is_counter(value.dtype) && !number.is_whole()) refuse("expected a whole number below 2^63");
    }

    void check_types(const Value& value, const Row& operation) {
        std::vector<Shape> shapes;
        bool fit = operation.dtypes == Dtypes::any || is_float(value.dtype);
        for (int k : value.operands) {
            const Value& operand = program_.values[k];
            shapes.push_back(operand.shape);
            const bool is_whole = is_counter(operand.dtype) ||
                                  (operand.operation == Op::number && std::holds_alternative<std::int64_t>(operand.number));
            fit = fit && (operand.operation == Op::support ||
                          (operation.dtypes == Dtypes::counts ? is_whole : operand.dtype == value.dtype));
        }
        const Index most = work(value.operation, shapes, value.shape);
        if (most < 0) refuse(std::string(row_of(value.operation).name) + ": the shapes do not fit");
        if (value.operation == Op::support)
            element_size(value.dtype);
        else
            check_dtype(value.shape, value.dtype);
        if (!fit) refuse(std::string(row_of(value.operation).name) + ": the dtypes do not fit");
        take_work(most);
    }

    void read_support(const Value& value) {
        if (program_.supports.emplace(value.name, value.shape).first->second != value.shape)
            refuse("a second support called " + readable(value.name) + ", of another size");
        const Index K = value.shape[0], D = value.shape[1], nnz = value.shape[2];
        take_memory(8 * (K + 1) + 16 * (D + 1) + 12 * nnz);
    }

    // The number of elements of sparse examples differs from batch to batch: they occur only together, in products.
    void check_examples() const {
        const int X = program_.buffer("X");
        if (program_.writes(X)) refuse("X cannot be changed, or have an output of its name, where it is sparse");
        for (const auto& [to, from] : program_.copies)
            if (from == X) refuse("X cannot be copied where it is sparse");
        for (std::size_t i = 0; i < program_.values.size(); ++i) {
            const Value& v = program_.values[i];
            for (std::size_t k = 0; k < v.operands.size(); ++k) {
                const Value& x = program_.values[v.operands[k]];
                const bool is_support = x.operation == Op::support && x.name == kExamples, is_X = x.buffer == X;
                if (is_support && k == 0 && program_.values[v.operands[place_of_values(v)]].buffer == X) continue;
                if (is_X && k == place_of_values(v) && program_.values[v.operands[0]].name == kExamples) continue;
                if (is_support || is_X)
                    refuse("value " + std::to_string(i) + ": " + row_of(v.operation).name +
                           " cannot read the elements of a sparse X");
            }
        }
    }

    // Which operand of a product has the values of its sparse matrix; 0 if it has none.
    static std::size_t place_of_values(const Value& v) {
        if (v.operation == Op::transposed_sum) return 4;
        return is_sparse_product(v.operation) || v.operation == Op::dense ? 1 : 0;
    }

    // What is computed where it is read has no buffer: those who read it read its operands.
    void read_deferred(const Value& value) {
        std::vector<int> found;
        for (int k : value.operands) found.insert(found.end(), bases_[k].begin(), bases_[k].end());
        if (found.size() > kMostBases) refuse("expected at most " + std::to_string(kMostBases) + " operands of deferred values");
        bases_.push_back(found);
    }

    // The buffer of a value, which must not hold what is still to be read.
    void read_place(Value& value, const Row& operation, const Json& line) {
        const int i = static_cast<int>(program_.values.size()),
                  b = index_of(line.at("buffer"), program_.buffers.size(), "buffer");
        const Buffer& buffer = program_.buffers[b];
        if (buffer.shape != value.shape || buffer.dtype != value.dtype) refuse("its buffer has a different shape or dtype");
        if (value.operation == Op::input) {
            if (buffer.name.empty() || buffer.name != value.name) refuse("an input needs a buffer of its name");
            if (held_[b] >= 0) refuse("an input that has been overwritten, or that is there twice");
        }
        if (is_sparse_product(value.operation) && !buffer.name.empty()) refuse("a sparse product cannot be an output");
        for (std::size_t k = 0; k < value.operands.size(); ++k) {
            for (const int base : bases_[value.operands[k]]) {
                const int place = program_.values[base].buffer;
                if (place < 0) continue;
                if (held_[place] != base) refuse("it reads value " + std::to_string(base) + ", which has been overwritten");
                if (place == b && !(works_in_place(operation, k) && base == value.operands[k]))
                    refuse("it overwrites what it reads");
            }
        }
        if (operation.kind == Kind::collective) check_collective(value, operation, b);
        held_[b] = i;
        value.buffer = b;
    }

    // What a collective reads and writes is in the caller's memory, as it is: whoever exchanges it with the other ranks has that.
    void check_collective(const Value& value, const Row& operation, int b) {
        const int place = program_.values[value.operands[0]].buffer;  // -1 for views and numbers
        if (place < 0 || program_.buffers[place].name.empty() || program_.buffers[b].name.empty())
            refuse(std::string(row_of(value.operation).name) + ": expected its operand and its result in buffers with names");
        if (works_in_place(operation, 0) && place != b)
            refuse(std::string(row_of(value.operation).name) + ": expected its result in the buffer of its operand");
        program_.has_collectives = true;
    }

    void read_copy(const Json::Array& pair) {
        if (pair.size() != 2) refuse("expected two buffers");
        const int to = index_of(pair[0], program_.buffers.size(), "buffer"),
                  from = index_of(pair[1], program_.buffers.size(), "buffer");
        const Buffer &a = program_.buffers[to], &b = program_.buffers[from];
        if (a.shape != b.shape || a.dtype != b.dtype) refuse("it is between buffers of different shapes or dtypes");
        if (held_[from] < 0) refuse("it reads a buffer that has no value");
        take_work(a.shape.empty() ? 1 : a.shape[0] * a.shape[1]);
        held_[to] = held_[from];
        program_.copies.emplace_back(to, from);
    }

    void check_output(const std::string& name, const Json& index) const {
        const int value = index_of(index, program_.values.size(), "value");
        if (held_[program_.buffer(name)] != value)
            refuse("its buffer does not hold value " + std::to_string(value) + " at the end");
    }

    Program& program_;
    const Json& names_;
    std::vector<std::vector<int>>
        bases_;              // of each value, the value whose memory it is a view of, or itself; if deferred, several
    std::vector<int> held_;  // the value that is in each buffer; -1 if there is none yet
    Index memory_ = 0, work_ = 0;
};

Program::Program(const Json& description, const Limits& limits) : limits(limits) { ProgramReader(*this, description); }

bool Program::writes(int buffer) const {
    for (const Value& v : values)
        if (v.buffer == buffer && v.operation != Op::input) return true;
    for (const auto& [to, from] : copies)
        if (to == buffer) return true;
    return false;
}

int Program::buffer(const std::string& name) const {
    const auto found = named_.find(name);
    if (found == named_.end()) refuse("the program has no input " + readable(name));
    return found->second;
}

}  // namespace matgrad
