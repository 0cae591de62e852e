// Files of matrices in the safetensors format, and the programs that matgrad saves in them.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "matgrad/program.h"

namespace matgrad {

// An array in a file that was read: `dtype` is 'float32', 'float64', 'int32' or 'int64'.
struct Tensor {
    std::string dtype;
    std::vector<Index> shape;
    std::vector<std::byte> data;

    template <class T>
    const T* as(const char* expected) const;  // throws std::invalid_argument where the dtype is another
};

std::string in_words(const Shape& shape, const std::string& dtype);  // 2 × 3 float32

struct Safetensors {
    std::map<std::string, Tensor> tensors;
    std::map<std::string, std::string> metadata;
    std::string path = "";  // of the file that was read

    // Throws std::invalid_argument where the file cannot be read, or is damaged.
    static Safetensors read(const std::string& path);
    const Tensor& at(const std::string& name) const;  // throws std::invalid_argument where there is none
    void write(const std::string& path) const;        // whole or not at all
};

// A support in memory of its own; checked when it is made, with the index by columns kept in step.
class OwnedSupport {
public:
    OwnedSupport(Index rows, Index columns, const Tensor& starts, const Tensor& places);
    Support view() const;

private:
    Index rows_, columns_;
    std::vector<std::int64_t> starts_, column_starts_;
    std::vector<std::int32_t> columns_of_, rows_of_, positions_;
};

// A program of `matgrad program --save`, with the matrices and supports it starts with, ready to run. The program works
// on the tensors of the file in place, so that the file, written again, is one to go on with.
class SavedProgram {
public:
    SavedProgram(const std::string& path, std::shared_ptr<ThreadPool> pool);

    Safetensors file;
    Executor executor;

private:
    void bind();
    std::vector<OwnedSupport> supports_;
};

}  // namespace matgrad
