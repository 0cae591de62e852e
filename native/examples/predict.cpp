// Runs a program of `matgrad program --feedforward --save` on a file with examples X (N×D):
//
//     predict program.safetensors data.safetensors result.safetensors [--threads n]
//
// The result has the outputs Y (N×K), in the units of the targets that the model was trained on, and, where K is 2 or
// more, the predicted classes (N). Where the file has the true classes t (N), the accuracy is printed.
#include "common.h"

using namespace matgrad;

namespace {

template <class T>
Tensor tensor(const char* dtype, const Shape& shape, const std::vector<T>& numbers) {
    const auto* bytes = reinterpret_cast<const std::byte*>(numbers.data());
    return {dtype, shape, {bytes, bytes + numbers.size() * sizeof(T)}};
}

// Y, batch by batch; the last one is filled up with rows of 0, whose results are dropped.
template <class T>
std::vector<T> outputs(SavedProgram& saved, const std::vector<T>& X, Index N, Index D, Index K, Index batch_size) {
    std::vector<T> Y(N * K), rows(batch_size * D), results(batch_size * K);
    saved.executor.bind("X", static_cast<const void*>(rows.data()));
    saved.executor.bind("Y", results.data());
    for (Index i = 0; i < N; i += batch_size) {
        const Index n = std::min(batch_size, N - i);
        std::fill(rows.begin() + n * D, rows.end(), T(0));
        std::copy_n(X.begin() + i * D, n * D, rows.begin());
        saved.executor.run();
        std::copy_n(results.begin(), n * K, Y.begin() + i * K);
    }
    return Y;
}

// Y in the units of the targets: Y·scale + offset, where the model was trained on scaled ones.
template <class T>
void scale_back(const SavedProgram& saved, std::vector<T>& Y, Index K) {
    if (!saved.file.tensors.count("extra.target_offset")) return;
    const std::vector<T> offset = row<T>(saved, "extra.target_offset", K), scale = row<T>(saved, "extra.target_scale", K);
    for (std::size_t i = 0; i < Y.size(); ++i) Y[i] = Y[i] * scale[i % K] + offset[i % K];
}

template <class T>
void predict_all(SavedProgram& saved, const Safetensors& data, const std::string& path) {
    const Buffer x = input(saved, "X", "feedforward"), y = input(saved, "Y", "feedforward");
    if (x.shape[0] != y.shape[0])
        throw std::invalid_argument(saved.file.path + ": expected X and Y with the same number of rows, found " +
                                    std::to_string(x.shape[0]) + " and " + std::to_string(y.shape[0]));
    const std::vector<T> X = examples<T>(saved, data, x.shape[1]);
    const Index N = data.at("X").shape[0], K = y.shape[1];
    Limits::of_machine().check_memory(checked_product({N, K, static_cast<Index>(sizeof(T))}), "the result");
    const std::int64_t* t = K > 1 && N > 0 && data.tensors.count("t") ? classes(data, N, K) : nullptr;
    std::vector<T> Y = about(saved.file.path, [&] { return outputs(saved, X, N, x.shape[1], K, x.shape[0]); });
    scale_back(saved, Y, K);
    Safetensors result{{{"Y", tensor(y.dtype.c_str(), {N, K}, Y)}}, {}};
    std::vector<std::int64_t> predicted(N);
    for (Index i = 0; i < N; ++i) predicted[i] = std::max_element(&Y[i * K], &Y[i * K] + K) - &Y[i * K];
    if (K > 1) result.tensors["classes"] = tensor("int64", {N}, predicted);
    result.write(path);
    std::printf("wrote %td predictions to %s\n", N, path.c_str());
    if (!t) return;
    Index correct = 0;
    for (Index i = 0; i < N; ++i) correct += predicted[i] == t[i];
    std::printf("accuracy %.4f\n", static_cast<double>(correct) / static_cast<double>(N));
}

constexpr const char* kPredictUsage = "usage: predict PROGRAM DATA RESULT [--threads N]";
constexpr const char* kPredictHelp =
    "Writes the outputs Y, and the classes, of the examples X (N x D) in DATA to RESULT, by the feedforward in PROGRAM, of\n"
    "`matgrad program --feedforward --save`. All three are safetensors files. With classes t (N) in DATA: the accuracy.\n\n"
    "  --threads N   by default one for each core\n";

}  // namespace

void predict(int count, char** words) {
    const Arguments arguments(count, words, {{"--threads", all_threads()}});
    if (arguments.files.size() != 3) throw std::invalid_argument(kPredictUsage);
    check_result(arguments.files[2], {arguments.files[0], arguments.files[1]});
    SavedProgram saved(arguments.files[0], thread_pool(arguments));
    const Safetensors data = Safetensors::read(arguments.files[1]);
    const bool is_single = saved.executor.program().dtype == "float32";
    (is_single ? predict_all<float> : predict_all<double>)(saved, data, arguments.files[2]);
}

int main(int count, char** words) { return run_example(count, words, kPredictUsage, kPredictHelp, predict); }
