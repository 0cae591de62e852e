// Trains a program of `matgrad program --save` on a file with examples X (N×D) and their classes t (N):
//
//     train program.safetensors data.safetensors result.safetensors [--rate 0.01] [--epochs 1] [--threads n] [--timer n]
//
// The result is the program's file with the new state: to go on with, or for `matgrad evaluate`.
#include <chrono>
#include <numeric>

#include "common.h"

using namespace matgrad;

namespace {

// Dropout that is renewed every epoch wants something to happen between epochs, which is not part of the program.
void check_renewal(const Safetensors& file) {
    if (!file.metadata.count("model")) return;
    const Json model = file.json("model").at("model");
    if (model.has("renew") && !(model.at("renew").is_string() && model.at("renew").string() == "step"))
        throw std::invalid_argument(file.path + ": expected dropout that is renewed every step, found every epoch");
}

template <class T>
void train_epochs(SavedProgram& saved, const Safetensors& data, double rate, int epochs) {
    const Shape batch_shape = input(saved, "X", "a training step").shape;
    const Index K = input(saved, "T", "a training step").shape[1], batch_size = batch_shape[0];
    input(saved, "eta", "a training step", false);
    const std::vector<T> X = examples<T>(saved, data, batch_shape[1]);
    const Index N = data.at("X").shape[0], batches = N / batch_size, rows = std::max<Index>(K, 2);
    if (batches == 0)
        throw std::invalid_argument(data.path + ": expected at least one batch of " + std::to_string(batch_size) +
                                    " examples, found " + std::to_string(N));
    const Index bytes = checked_product({rows, K, static_cast<Index>(sizeof(T))});
    saved.executor.program().limits.check_memory(bytes, saved.file.path + ": the table of " + std::to_string(rows) + " classes");
    std::vector<T> targets(rows * K);  // of each class: a one-hot row, or 0 and 1 where there is one output
    for (Index k = 0; k < rows; ++k) targets[K == 1 ? k : k * K + k] = static_cast<T>(K == 1 ? k : 1);
    const Examples epoch{X.data(), targets.data(), N, rows, nullptr, classes(data, N, rows)};
    const std::vector<T> rates(batches, static_cast<T>(rate));
    for (int i = 1; i <= epochs; ++i) {
        const auto start = std::chrono::steady_clock::now();
        about(saved.file.path, [&] { saved.executor.run(epoch, rates.data(), batches); });
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        std::printf("epoch %d: %td batches of %td examples in %.3f s\n", i, batches, batch_size, seconds);
    }
    if (N % batch_size) std::printf("left out: the last %td examples, which fill no batch\n", N % batch_size);
}

// The values of a step that took the most time; what is fused with a product, or computed in one pass, counts for that.
void print_times(const Executor& executor, int most) {
    const std::vector<Value>& values = executor.program().values;
    std::vector<std::size_t> order(values.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return executor.seconds[a] > executor.seconds[b]; });
    const double all = std::accumulate(executor.seconds.begin(), executor.seconds.end(), 0.0);
    for (std::size_t k = 0; k < order.size() && k < static_cast<std::size_t>(most) && executor.seconds[order[k]] > 0; ++k) {
        const Value& value = values[order[k]];
        std::printf("%8.4f s %5.1f %%  %s %s: %s\n", executor.seconds[order[k]], 100 * executor.seconds[order[k]] / all,
                    row_of(value.operation).name, value.name.c_str(), value.equation.c_str());
    }
}

constexpr const char* kTrainUsage = "usage: train PROGRAM DATA RESULT [--rate 0.01] [--epochs 1] [--threads N] [--timer N]";
constexpr const char* kTrainHelp =
    "Trains with the step in PROGRAM, of `matgrad program --save`, on the examples X (N x D) and classes t (N) in DATA,\n"
    "and writes PROGRAM with the new state to RESULT. All three are safetensors files; RESULT may be PROGRAM.\n\n"
    "  --rate 0.01   the learning rate\n"
    "  --epochs 1    how often to go through the examples, in their order\n"
    "  --threads N   by default one for each core\n"
    "  --timer N     print the seconds of the N values of a step that take the most\n";

}  // namespace

void train(int count, char** words) {
    const Arguments arguments(count, words, {{"--rate", 0.01}, {"--epochs", 1}, {"--threads", all_threads()}, {"--timer", 0}});
    if (arguments.files.size() != 3) throw std::invalid_argument(kTrainUsage);
    const std::string result = arguments.files[2];
    check_result(result, {arguments.files[1]});  // it may be the program's file, which has then been trained further
    SavedProgram saved(arguments.files[0], thread_pool(arguments));
    check_renewal(saved.file);
    if (saved.file.tensors.count("extra.target_offset"))
        throw std::invalid_argument(saved.file.path + ": expected a classifier, found a regression with scaled targets");
    const Safetensors data = Safetensors::read(arguments.files[1]);
    const bool is_single = saved.executor.program().dtype == "float32";
    const int shown = arguments.numbers.at("--timer") == 0 ? 0 : arguments.whole("--timer", kMostEpochs);
    saved.executor.timed = shown > 0;
    const double rate = arguments.numbers.at("--rate");
    (is_single ? train_epochs<float> : train_epochs<double>)(saved, data, rate, arguments.whole("--epochs", kMostEpochs));
    if (shown) print_times(saved.executor, shown);
    saved.file.write(result);
    std::printf("wrote %s\n", result.c_str());
}

int main(int count, char** words) { return run_example(count, words, kTrainUsage, kTrainHelp, train); }
