// What the examples share: their arguments, examples from a file, and errors in one line.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <map>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "matgrad/atomic_file.h"
#include "matgrad/cores.h"
#include "matgrad/errors.h"
#include "matgrad/safetensors.h"

namespace matgrad {

// The files on the command line, and the numbers of its options, such as `--rate 0.01`.
struct Arguments {
    std::vector<std::string> files;
    std::map<std::string, double> numbers;

    // `defaults` has the options that are known. Throws std::invalid_argument for another one, or where its number is none.
    Arguments(int count, char** words, std::map<std::string, double> defaults) : numbers(std::move(defaults)) {
        for (int i = 1; i < count; ++i) {
            const std::string word = words[i];
            if (!word.starts_with("--")) {
                files.push_back(word);
                continue;
            }
            if (!numbers.count(word)) throw std::invalid_argument("unknown option " + word);
            const std::string text = ++i < count ? words[i] : "";
            const std::optional<double> number = parse_number(text);
            if (!number || !std::isfinite(*number))
                throw std::invalid_argument(word + ": expected a number, found '" + text + "'");
            numbers[word] = *number;
        }
    }

    int whole(const std::string& option, int largest) const {
        const double x = numbers.at(option);
        if (x != std::floor(x) || x < 1 || x > largest) {
            char found[32];
            std::snprintf(found, sizeof found, "%g", x);
            throw std::invalid_argument(option + ": expected a whole number from 1 to " + std::to_string(largest) + ", found " +
                                        found);
        }
        return static_cast<int>(x);
    }
};

inline constexpr int kMostEpochs = 1'000'000;

// Refuses, before anything runs, a result that could not be written, or that would destroy a file that is read.
inline void check_result(const std::string& result, const std::vector<std::string>& kept) {
    check_replaceable(result);
    std::error_code error;
    for (const std::string& file : kept)
        if (std::filesystem::equivalent(file, result, error))
            throw std::invalid_argument(result + ": is read too; expected another file for the result");
}

inline double all_threads() { return cores(); }

// The threads that --threads asks for, but at most one per core: more would only wait for one another.
inline std::shared_ptr<ThreadPool> thread_pool(const Arguments& arguments) {
    return std::make_shared<ThreadPool>(std::min(arguments.whole("--threads", kMostThreads), cores()));
}

// The memory of X, T, Y or eta in the program of a file; `kind` is what the file should be.
inline const Buffer& input(const SavedProgram& saved, const std::string& name, const std::string& kind, bool is_matrix = true) {
    const Program& program = saved.executor.program();
    for (const Buffer& buffer : program.buffers)
        if (buffer.name == name && buffer.shape.empty() != is_matrix && buffer.dtype == program.dtype) return buffer;
    throw std::invalid_argument(saved.file.path + ": expected the program of " + kind + ", found one without a " +
                                (is_matrix ? "matrix " : "scalar ") + name + " of " + program.dtype);
}

[[noreturn]] inline void refuse(const Safetensors& file, const std::string& name, const std::string& expected) {
    const Tensor& found = file.at(name);
    throw std::invalid_argument(file.path + ": " + name + " is " + in_words(found.shape, found.dtype) + ", expected " + expected);
}

template <class T>
std::vector<T> numbers(const Safetensors& file, const std::string& name) {
    const Tensor& A = file.at(name);
    const auto converted = [&](const auto* data) { return std::vector<T>(data, data + A.data.size() / element_size(A.dtype)); };
    if (A.dtype == "float32") return converted(A.as<float>("float32"));
    if (A.dtype == "float64") return converted(A.as<double>("float64"));
    refuse(file, name, "float32 or float64");
}

// A row of n numbers, such as the offset of a normalization.
template <class T>
std::vector<T> row(const SavedProgram& saved, const std::string& name, Index n) {
    if (saved.file.at(name).shape != Shape{1, n}) refuse(saved.file, name, "1 × " + std::to_string(n));
    return numbers<T>(saved.file, name);
}

// The examples X (N×D), scaled as those that the model was trained on: (X - offset) / scale.
template <class T>
std::vector<T> examples(const SavedProgram& saved, const Safetensors& data, Index D) {
    const Shape& shape = data.at("X").shape;
    if (shape.size() != 2 || shape[1] != D) refuse(data, "X", "N × " + std::to_string(D));
    std::vector<T> X = numbers<T>(data, "X");
    if (!saved.file.tensors.count("extra.offset")) return X;
    const std::vector<T> offset = row<T>(saved, "extra.offset", D), scale = row<T>(saved, "extra.scale", D);
    for (std::size_t i = 0; i < X.size(); ++i) X[i] = (X[i] - offset[i % D]) / scale[i % D];
    return X;
}

// The classes t (N) of the examples, each below K.
inline const std::int64_t* classes(const Safetensors& data, Index N, Index K) {
    const Tensor& t = data.at("t");
    if (t.shape != Shape{N} || t.dtype != "int64") refuse(data, "t", in_words({N}, "int64"));
    const std::int64_t* labels = t.as<std::int64_t>("int64");
    for (Index i = 0; i < N; ++i)
        if (labels[i] < 0 || labels[i] >= K)
            throw std::invalid_argument(data.path + ": t has the class " + std::to_string(labels[i]) + ", expected 0 to " +
                                        std::to_string(K - 1));
    return labels;
}

// Runs an example, or prints its help; an error is one line, and exit status 2.
template <class Function>
int run_example(int count, char** words, const char* usage, const char* help, Function function) {
    for (int i = 1; i < count; ++i)
        if (words[i] == std::string("--help") || words[i] == std::string("-h")) return std::printf("%s\n\n%s", usage, help), 0;
    try {
        function(count, words);
        return 0;
    } catch (const std::bad_alloc&) {
        std::fprintf(stderr, "error: not enough memory\n");
        return 2;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "error: %s\n", error.what());
        return 2;
    }
}

}  // namespace matgrad
