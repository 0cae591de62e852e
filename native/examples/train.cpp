// Trains a program of `matgrad program --save` for one epoch on a file with examples X (N×D) and labels t (N):
//
//     train program.safetensors data.safetensors [learning rate] [threads] [result.safetensors]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <thread>

#include "matgrad/safetensors.h"

using namespace matgrad;

namespace {

// The seconds that an epoch took. The labels become one-hot targets; what is left after the last whole batch is not used.
template <class T>
double train(SavedProgram& saved, const Safetensors& data, const char* dtype, double learning_rate) {
    const Program& program = saved.executor.program();
    const Tensor &X = data.tensors.at("X"), &t = data.tensors.at("t");
    const Shape batch = program.buffers[program.buffer("X")].shape;
    const Index K = program.buffers[program.buffer("T")].shape[1];
    if (X.shape.size() != 2 || X.shape[1] != batch[1] || t.shape != Shape{X.shape[0]})
        throw std::invalid_argument("X and t do not fit the program");
    std::vector<T> one_hot(K * K);
    for (Index k = 0; k < K; ++k) one_hot[k * K + k] = 1;
    const Examples examples{X.as<T>(dtype), one_hot.data(), X.shape[0], K, nullptr, t.as<std::int64_t>("int64")};
    const Index batches = X.shape[0] / batch[0];
    const std::vector<T> rates(batches, static_cast<T>(learning_rate));
    const auto start = std::chrono::steady_clock::now();
    saved.executor.run(examples, rates.data(), batches);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

int main(int count, char** arguments) {
    if (count < 3) {
        std::fprintf(stderr, "usage: %s program.safetensors data.safetensors [learning rate] [threads] [result.safetensors]\n",
                     arguments[0]);
        return 2;
    }
    try {
        const double learning_rate = count > 3 ? std::atof(arguments[3]) : 0.01;
        const int threads = count > 4 ? std::atoi(arguments[4]) : static_cast<int>(std::thread::hardware_concurrency());
        SavedProgram saved(arguments[1], std::make_shared<ThreadPool>(threads));
        const Safetensors data = Safetensors::read(arguments[2]);
        const Program& program = saved.executor.program();
        const bool is_single = program.buffers[program.buffer("X")].dtype == "float32";
        const double seconds = is_single ? train<float>(saved, data, "float32", learning_rate)
                                         : train<double>(saved, data, "float64", learning_rate);
        if (count > 5) Safetensors{saved.state, {}}.write(arguments[5]);
        std::printf("one epoch in %.3f s\n", seconds);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 2;
    }
}
