// Files of matrices in the safetensors format, and the programs that matgrad saves in them.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "matgrad/program.h"

namespace matgrad {

// An array in a file; `dtype` is 'float32', 'float64', 'int32' or 'int64'.
struct Tensor {
    std::string dtype;
    std::vector<Index> shape;
    std::vector<std::byte> data;

    template <class T>
    const T* as(const char* expected) const;  // throws std::invalid_argument if that is not the dtype
};

std::string in_words(const Shape& shape, const std::string& dtype);  // 2 × 3 float32

struct Safetensors {
    std::map<std::string, Tensor> tensors;
    std::map<std::string, std::string> metadata;
    std::string path = "";  // of the file that was read

    // Throws std::invalid_argument if the file cannot be read, is damaged, or is larger than the machine's memory.
    static Safetensors read(const std::string& path);
    const Tensor& at(const std::string& name) const;  // throws std::invalid_argument if there is none
    Json json(const std::string& key) const;          // a string of the metadata, parsed
    void write(const std::string& path) const;        // completely or not at all
};

// A support with its own memory. The index by rows is checked, and the index by columns is made from it.
class OwnedSupport {
public:
    OwnedSupport(Index rows, Index columns, const Tensor& starts, const Tensor& places);
    Support view() const;

private:
    Index rows_, columns_;
    std::vector<std::int64_t> starts_, column_starts_;
    std::vector<std::int32_t> columns_of_, rows_of_, positions_;
};

// A program of `matgrad program --save` with its initial matrices and supports, ready to run. It updates the tensors of
// the file in place, so that one can write the file again and continue from there.
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
