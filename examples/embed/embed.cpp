// Predicts one example with the C++ core: `embed feedforward.safetensors x1 x2 …` prints the outputs of a file of
//
//     matgrad program --load-weights model.npz --feedforward --batch-size 1 --save feedforward.safetensors
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <vector>

#include "matgrad/cores.h"
#include "matgrad/safetensors.h"

int main(int count, char** words) try {
    if (count < 2) throw std::invalid_argument("usage: embed PROGRAM X...");
    matgrad::SavedProgram saved(words[1], std::make_shared<matgrad::ThreadPool>(matgrad::cores()));  // checks the file
    const matgrad::Program& program = saved.executor.program();
    const auto numbers = [&](const char* name) {
        const matgrad::Buffer& buffer = program.buffers[program.buffer(name)];
        if (buffer.dtype != "float32") throw std::invalid_argument("expected a program in float32");
        return std::vector<float>(buffer.shape[0] * buffer.shape[1]);
    };

    std::vector<float> X = numbers("X"), Y = numbers("Y");
    for (int j = 0; j < static_cast<int>(X.size()) && j + 2 < count; ++j) X[j] = std::strtof(words[j + 2], nullptr);
    saved.executor.bind("X", static_cast<const void*>(X.data()));
    saved.executor.bind("Y", Y.data());
    saved.executor.run();
    for (const float y : Y) std::printf("%.6g\n", y);
} catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 2;
}
