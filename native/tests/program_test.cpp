// Programs: which are refused, and what small ones compute.
#include <cstdint>
#include <fstream>

#include "matgrad/safetensors.h"
#include "testing.h"

using namespace matgrad;
using namespace matgrad::testing;

namespace {

const std::string kProgram = R"({"format": 2, "sizes": {"N": 2},
    "buffers": [{"shape": [2, 3], "dtype": "float64", "name": "X"}, {"shape": [1, 3], "dtype": "float64", "name": "b"}],
    "values": [{"operation": "input", "operands": [], "shape": ["N", 3], "dtype": "float64", "name": "X", "buffer": 0},
               {"operation": "input", "operands": [], "shape": [1, 3], "dtype": "float64", "name": "b", "buffer": 1},
               {"operation": "columns_sum", "operands": [0], "shape": [1, 3], "dtype": "float64", "buffer": 1}],
    "outputs": {"b": 2}, "copies": []})";

std::string replaced(const std::string& from, const std::string& to) {
    std::string text = kProgram;
    return text.replace(text.find(from), from.size(), to);
}

void test_json() {
    check(Json::parse(R"( {"a": [1, -2.5e3, "x\n\u00e9", true, null]} )").at("a").array()[1].number() == -2500, "numbers");
    check(Json::parse(R"("\u00e9\u2265")").string() == "é≥", "escapes");
    check(Json::parse("9007199254740993").integer() == 9007199254740993 && Json::parse("-9223372036854775808").is_whole(),
          "whole numbers");
    check(Json::parse("1e3").number() == 1000 && Json::parse("9223372036854775808").number() == 0x1p63, "other numbers");
    check(std::isnan(Json::parse("NaN").number()) && Json::parse("-Infinity").number() < -1e308, "numbers that Python writes");
    check(Json::parse("1e999").number() > 1e308 && Json::parse("1e-999").number() == 0, "numbers that are too large or small");
    check(Json::parse(R"("\ud83d\ude00")").string() == "😀", "a character in two parts");
    for (const char* text : {"", "{", "[1,", "{\"a\" 1}", "\"a", "[1] 2", "nul", "{\"a\": }", "\"\\u12\"", "\"\\x\"", "-"})
        check_throws([&] { Json::parse(text); }, std::string("JSON ") + text);
    check_throws([] { Json::parse(std::string(100000, '[')); }, "deep nesting");
    check_throws([] { Json::parse("[1]").object(); }, "another kind");
    check_throws([] { Json::parse("{}").at("a"); }, "a missing key");
    check_throws([] { Json::parse("1.5").integer(); }, "a fraction");
}

void test_unsound() {
    Program{Json::parse(kProgram)};
    for (const auto& [from, to] : std::initializer_list<std::pair<const char*, const char*>>{
             {"\"format\": 2", "\"format\": 1"},
             {"\"operands\": [0]", "\"operands\": [2]"},
             {"\"operands\": [0]", "\"operands\": [-1]"},
             {"\"operands\": [0]", "\"operands\": []"},
             {"\"operands\": [0]", "\"operands\": [0, 1]"},
             {"columns_sum", "rows_sum"},
             {"columns_sum", "unknown"},
             {"\"shape\": [\"N\", 3]", "\"shape\": [\"M\", 3]"},
             {"\"shape\": [\"N\", 3]", "\"shape\": [0, 3]"},
             {"\"shape\": [\"N\", 3]", "\"shape\": [3]"},
             {"\"shape\": [2, 3]", "\"shape\": [1000000, 3]"},
             {"\"buffer\": 0", "\"buffer\": 7"},
             {"\"buffer\": 0", "\"buffer\": -1"},
             {"\"copies\": []", "\"copies\": [[0, 1]]"},
             {"\"copies\": []", "\"copies\": [[9, 0]]"},
             {"\"copies\": []", "\"copies\": [[0]]"},
             {"{\"N\": 2}", "{\"N\": 2, \"M\": 0}"},
             {"{\"N\": 2}", "{\"N\": 2.0}"},
             {"{\"b\": 2}", "{\"b\": 0}"},
             {"{\"b\": 2}", "{\"c\": 2}"},
             {"\"dtype\": \"float64\", \"buffer\": 1}]", "\"dtype\": \"float64\", \"buffer\": 1, \"number\": 1}]"},
         })
        check_throws([&, from = from, to = to] { Program{Json::parse(replaced(from, to))}; },
                     std::string("a program with ") + to);
}

// What a program asks for is added up before anything is done.
void test_limits() {
    const auto refuse = [](const std::string& from, const std::string& to, const char* what) {
        std::string text = kProgram;
        for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
            text.replace(at, from.size(), to);
        check_throws([&] { Program(Json::parse(text), {1 << 20, 1 << 20}); }, what);
    };
    Program(Json::parse(kProgram), {8 * (6 + 3), 2 * (6 + 3)});
    check_throws([] { Program(Json::parse(kProgram), {8 * (6 + 3) - 1, 1000}); }, "too little memory");
    check_throws([] { Program(Json::parse(kProgram), {1000, 5}); }, "too much work");
    for (const char* n : {"100000", "2147483647", "2147483648", "4294967296", "4611686018427387904", "9223372036854775807"})
        refuse("3]", std::string(n) + "]", n);
    check(checked_product({1 << 20, 1 << 20, 1 << 20, 8}) == std::numeric_limits<Index>::max(), "a product that is too large");
    check(checked_product({Index(1) << 40, Index(1) << 40, 0}) == 0 && checked_product({3, 4}) == 12, "a product that is not");
    check(checked_sum(std::numeric_limits<Index>::max(), 1) == std::numeric_limits<Index>::max(), "a sum that is too large");
    const Limits machine = Limits::of_machine(), small = Limits::of_file(1000), large = Limits::of_file(std::uintmax_t(1) << 40);
    check(small.memory < machine.memory && small.work < machine.work, "the limits of a small file");
    check(large.memory == machine.memory && large.work == machine.work, "the limits of a large file");
}

void test_numbers() {
    for (const char* text : {"", " 1", "1 ", "1x", "0x10", "nan", "inf", "1,5", "--1", "e5", "."})
        check(!parse_number(text), std::string("the number '") + text + "'");
    check(parse_number("-1.5e3") == -1500 && parse_number(".5") == 0.5 && *parse_number("1e999") > 1e308, "numbers");
}

void test_run() {
    Executor executor(Program(Json::parse(kProgram)), std::make_shared<ThreadPool>(2));
    double X[] = {1, 2, 3, 4, 5, 6}, b[] = {0, 0, 0};
    executor.bind("X", X);
    check_throws([&] { executor.run(); }, "an input that is not bound");
    check_throws([&] { executor.bind("Y", X); }, "an unknown input");
    executor.bind("b", b);
    executor.run();
    check(b[0] == 5 && b[1] == 7 && b[2] == 9, "the sums of the columns");
}

// b = Σ X + η·Σ T over the rows of a batch
const std::string kStep = R"({"format": 2, "sizes": {"N": 2},
    "buffers": [{"shape": [2, 3], "dtype": "float64", "name": "X"}, {"shape": [2, 3], "dtype": "float64", "name": "T"},
                {"shape": [], "dtype": "float64", "name": "eta"}, {"shape": [1, 3], "dtype": "float64", "name": "b"},
                {"shape": [2, 3], "dtype": "float64"}],
    "values": [{"operation": "input", "operands": [], "shape": ["N", 3], "dtype": "float64", "name": "X", "buffer": 0},
               {"operation": "input", "operands": [], "shape": ["N", 3], "dtype": "float64", "name": "T", "buffer": 1},
               {"operation": "input", "operands": [], "shape": [], "dtype": "float64", "name": "eta", "buffer": 2},
               {"operation": "input", "operands": [], "shape": [1, 3], "dtype": "float64", "name": "b", "buffer": 3},
               {"operation": "add_scaled", "operands": [0, 2, 1], "shape": ["N", 3], "dtype": "float64", "buffer": 4},
               {"operation": "columns_sum", "operands": [4], "shape": [1, 3], "dtype": "float64", "buffer": 3}],
    "outputs": {"b": 5}, "copies": []})";

void test_batches() {
    Executor executor(Program(Json::parse(kStep)), std::make_shared<ThreadPool>(2));
    const double X[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, T[] = {1, 0, 0, 0, 1, 0, 0, 0, 1};
    const std::int64_t order[] = {4, 1, 0, 2, 3}, labels[] = {0, 1, 2, 0, 1}, unknown[] = {0, 1, 3, 0, 5};
    const double rates[] = {100, 1000};
    double b[3];
    executor.bind("b", b);
    executor.run({X, T, 5, 3, order, labels}, rates, 1);  // rows 4 and 1, both of class 1
    check(b[0] == 17 && b[1] == 219 && b[2] == 21, "a batch of rows in another order");
    executor.run({X, T, 5, 3, nullptr, labels}, rates, 2);  // last rows 2 and 3, of classes 2 and 0
    check(b[0] == 1017 && b[1] == 19 && b[2] == 1021, "the second batch, with the second rate");
    executor.run({X + 6, X + 6, 3, 3}, rates, 1);
    check(b[0] == 17 + 1700 && b[1] == 19 + 1900, "targets of their own");
    check_throws([&] { executor.run({X, T, 5, 3, nullptr, labels}, rates, 3); }, "more batches than there are");
    check_throws([&] { executor.run({X, T, 5, 3, nullptr, unknown}, rates, 2); }, "an unknown class");
    check_throws([&] { executor.run({X, T, 5, 3, unknown + 3, labels}, rates, 1); }, "an unknown example");
    check_throws([&] { executor.run(); }, "inputs that are not bound any more");
    check(executor.runs == 5, "the number of runs");
    const auto refuse = [&](std::initializer_list<std::pair<std::string, std::string>> changes, const char* what) {
        std::string text = kStep;
        for (const auto& [from, to] : changes)
            for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
                text.replace(at, from.size(), to);
        Executor other(Program(Json::parse(text)), std::make_shared<ThreadPool>(1));
        other.bind("b", b);
        check_throws([&] { other.run({X, T, 5, 3, nullptr, labels}, rates, 1); }, what);
    };
    refuse({{"\"eta\"", "\"rate\""}}, "no rate");
    refuse({{"[0, 2, 1], \"shape\": [\"N\", 3], \"dtype\": \"float64\", \"buffer\": 4",
             "[0, 2, 1], \"shape\": [\"N\", 3], \"dtype\": \"float64\", \"buffer\": 0"}},
           "a program that changes X");
    refuse(
        {{"\"shape\": [], \"dtype\": \"float64\", \"name\": \"eta\"", "\"shape\": [], \"dtype\": \"float32\", \"name\": \"eta\""},
         {"add_scaled\", \"operands\": [0, 2, 1]", "add\", \"operands\": [0, 1]"}},
        "a rate of another dtype");
    const double constant[3] = {};
    check_throws([&] { executor.bind("b", static_cast<const void*>(constant)); }, "a constant that the program changes");
}

// k' = 3·k - 1 for a counter k, and U = uniform(seed, k); a matrix is there so that the program has a dtype
const std::string kCounter = R"({"format": 2, "sizes": {},
    "buffers": [{"shape": [], "dtype": "int64", "name": "k"}, {"shape": [], "dtype": "int64"}, {"shape": [], "dtype": "int64"},
                {"shape": [2, 3], "dtype": "float64", "name": "U"}],
    "values": [{"operation": "input", "operands": [], "shape": [], "dtype": "int64", "name": "k", "buffer": 0},
               {"operation": "number", "operands": [], "shape": [], "dtype": "int64", "number": 3},
               {"operation": "number", "operands": [], "shape": [], "dtype": "int64", "number": 1},
               {"operation": "number", "operands": [], "shape": [], "dtype": "float64", "number": 9007199254740993},
               {"operation": "uniform", "operands": [3, 0], "shape": [2, 3], "dtype": "float64", "buffer": 3},
               {"operation": "hadamard", "operands": [0, 1], "shape": [], "dtype": "int64", "buffer": 1},
               {"operation": "subtract", "operands": [5, 2], "shape": [], "dtype": "int64", "buffer": 2}],
    "outputs": {"k": 6, "U": 4}, "copies": [[0, 2]]})";

void test_counters() {
    Executor executor(Program(Json::parse(kCounter)), std::make_shared<ThreadPool>(1));
    std::int64_t k = (std::int64_t(1) << 53) + 1;
    table::Matrix<double> U(2, 3);
    executor.bind("k", &k);
    executor.bind("U", U.data());
    const auto expected =
        table::uniform<double>(2, 3, static_cast<std::uint32_t>(9007199254740993), static_cast<std::uint32_t>(k));
    executor.run();
    check(k == 3 * ((std::int64_t(1) << 53) + 1) - 1, "a counter above 2^53");
    check_close<double>(U, expected, 0, "uniform numbers from a seed and a count above 2^53");
    std::string text = kCounter;
    check_throws(
        [&] {
            Executor(Program(Json::parse(text.replace(text.find("9007199254740993"), 16, "1e30"))),
                     std::make_shared<ThreadPool>(1));
        },
        "a seed that is too large");
    text = kCounter;
    check_throws(
        [&] {
            Executor(Program(Json::parse(text.replace(text.find("hadamard"), 8, "divide"))), std::make_shared<ThreadPool>(1));
        },
        "a quotient of whole numbers");
}

// b = r(2·Σ X) + Σ X over the rows of X, where r is a collective
const std::string kCollective = R"({"format": 2, "sizes": {},
    "buffers": [{"shape": [2, 3], "dtype": "float64", "name": "X"}, {"shape": [1, 3], "dtype": "float64", "name": "b"},
                {"shape": [1, 3], "dtype": "float64"}, {"shape": [1, 3], "dtype": "float64", "name": "exchange 0"}],
    "values": [{"operation": "input", "operands": [], "shape": [2, 3], "dtype": "float64", "name": "X", "buffer": 0},
               {"operation": "columns_sum", "operands": [0], "shape": [1, 3], "dtype": "float64", "buffer": 2},
               {"operation": "add", "operands": [1, 1], "shape": [1, 3], "dtype": "float64", "buffer": 3},
               {"operation": "all_reduce", "operands": [2], "shape": [1, 3], "dtype": "float64", "buffer": 3},
               {"operation": "add", "operands": [3, 1], "shape": [1, 3], "dtype": "float64", "buffer": 1}],
    "outputs": {"b": 4}, "copies": []})";

void test_collectives() {
    const auto changed = [](const std::string& from, const std::string& to) {
        std::string text = kCollective;
        return text.replace(text.find(from), from.size(), to);
    };
    for (const auto& [from, to] :
         std::initializer_list<std::pair<std::string, std::string>>{{"\"exchange 0\"", "\"\""},
                                                                    {"\"operands\": [2]", "\"operands\": [1]"},
                                                                    {"\"all_reduce\"", "\"take_rows\""},
                                                                    {"\"operands\": [3, 1]", "\"operands\": [2, 1]"}})
        check_throws([&, text = changed(from, to)] { Program{Json::parse(text)}; }, "a collective with " + to);
    double X[] = {1, 2, 3, 4, 5, 6}, b[3] = {}, sum[3] = {};
    for (int threads : {1, 2, 3}) {
        Executor executor(Program(Json::parse(kCollective)), std::make_shared<ThreadPool>(threads));
        executor.bind("X", X), executor.bind("b", b), executor.bind("exchange 0", sum);
        check_throws([&] { executor.run(); }, "collectives without a function");
        executor.collective = [](int) { throw std::runtime_error("a rank is gone"); };
        std::string message;
        try {
            executor.run();
        } catch (const std::runtime_error& error) {
            message = error.what();
        }
        check(message == "a rank is gone", "the exception of a collective");
        executor.collective = [&](int value) {
            check(value == 3 && sum[0] == 10 && sum[1] == 14 && sum[2] == 18, "the operand of a collective");
            sum[0] = 100;
        };
        executor.run();
        check(b[0] == 105 && b[1] == 21 && b[2] == 27 && executor.runs == 1, "the result of a collective");
    }
}

void test_files() {
    check_throws([] { Safetensors::read("no such file"); }, "a missing file");
    const char* path = "damaged.safetensors";
    const auto write = [&](const std::string& header, std::uint64_t length) {
        std::ofstream file(path, std::ios::binary);
        file.write(reinterpret_cast<const char*>(&length), 8);
        file << header << "12345678";
    };
    for (
        const char* entry :
        {R"({"x": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}})",
         R"({"x": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}})",
         R"({"x": {"dtype": "F32", "shape": [2], "data_offsets": [-4, 4]}})",
         R"({"x": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}})",
         R"({"x": {"dtype": "F32", "shape": [4611686018427387904, 4], "data_offsets": [0, 8]}})",
         R"({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "y": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})",
         R"({"x": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})",
         R"({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})",
         R"({"x": {"dtype": "Q8", "shape": [2], "data_offsets": [0, 8]}})", R"({"x": )"}) {
        write(entry, std::string(entry).size());
        check_throws([&] { Safetensors::read(path); }, std::string("a file with ") + entry);
    }
    write("{}", 1000);
    check_throws([&] { Safetensors::read(path); }, "a header that is too long");
    write("{}", 2);
    check_throws([&] { SavedProgram(path, std::make_shared<ThreadPool>(1)); }, "a file without a program");
    std::remove(path);
}

Tensor whole_numbers(const std::vector<std::int64_t>& x) {
    Tensor tensor{"int64", {static_cast<Index>(x.size())}, std::vector<std::byte>(8 * x.size())};
    std::copy(x.begin(), x.end(), reinterpret_cast<std::int64_t*>(tensor.data.data()));
    return tensor;
}

Tensor places(const std::vector<std::int32_t>& x) {
    Tensor tensor{"int32", {static_cast<Index>(x.size())}, std::vector<std::byte>(4 * x.size())};
    std::copy(x.begin(), x.end(), reinterpret_cast<std::int32_t*>(tensor.data.data()));
    return tensor;
}

void test_supports() {
    const OwnedSupport support(2, 3, whole_numbers({0, 2, 3}), places({0, 2, 0}));
    const SparseIndex by_columns = support.view().by_columns;
    check(by_columns.starts[1] == 2 && by_columns.starts[2] == 2 && by_columns.starts[3] == 3, "the starts of the columns");
    check(by_columns.columns[1] == 1 && by_columns.positions[1] == 2 && by_columns.positions[2] == 1, "the index by columns");
    for (const auto& [starts, columns] :
         std::initializer_list<std::pair<std::vector<std::int64_t>, std::vector<std::int32_t>>>{{{0, 2}, {0, 2, 0}},
                                                                                                {{0, 2, 2}, {0, 2, 0}},
                                                                                                {{1, 2, 3}, {0, 2, 0}},
                                                                                                {{0, 9, 3}, {0, 2, 0}},
                                                                                                {{0, -1, 3}, {0, 2, 0}},
                                                                                                {{0, 2, 3}, {0, 3, 0}},
                                                                                                {{0, 2, 3}, {-1, 2, 0}},
                                                                                                {{0, 2, 3}, {2, 2, 0}},
                                                                                                {{0, 2, 3}, {2, 0, 0}}})
        check_throws([&, s = starts, c = columns] { OwnedSupport(2, 3, whole_numbers(s), places(c)); }, "an unsound support");
    check_throws([] { OwnedSupport(2, 3, places({0, 2, 3}), places({0, 2, 0})); }, "starts of another dtype");
}

// Y = W X with a sparse 2×3 matrix W
const std::string kSparse = R"({"format": 2, "sizes": {},
    "buffers": [{"shape": [1, 3], "dtype": "float64", "name": "w"}, {"shape": [3, 2], "dtype": "float64", "name": "X"},
                {"shape": [3, 2], "dtype": "float64"}, {"shape": [2, 2], "dtype": "float64"},
                {"shape": [2, 2], "dtype": "float64", "name": "Y"}],
    "values": [{"operation": "support", "operands": [], "shape": [2, 3, 3], "dtype": "int32", "name": "S"},
               {"operation": "input", "operands": [], "shape": [1, 3], "dtype": "float64", "name": "w", "buffer": 0},
               {"operation": "input", "operands": [], "shape": [3, 2], "dtype": "float64", "name": "X", "buffer": 1},
               {"operation": "copy", "operands": [2], "shape": [3, 2], "dtype": "float64", "buffer": 2},
               {"operation": "sparse_product", "operands": [0, 1, 3], "shape": [2, 2], "dtype": "float64", "buffer": 3}],
    "outputs": {"Y": 4}, "copies": [[4, 3]]})";

void test_sparse() {
    Executor executor(Program(Json::parse(kSparse)), std::make_shared<ThreadPool>(2));
    double w[] = {1, 2, 3}, X[] = {1, 2, 3, 4, 5, 6}, Y[4];
    executor.bind("w", w), executor.bind("X", X), executor.bind("Y", Y);
    check_throws([&] { executor.run(); }, "a support that is not bound");
    const OwnedSupport fewer(2, 3, whole_numbers({0, 1, 2}), places({0, 0})),
        more(2, 3, whole_numbers({0, 2, 4}), places({0, 2, 0, 1})), other(3, 3, whole_numbers({0, 2, 3, 3}), places({0, 2, 0})),
        support(2, 3, whole_numbers({0, 2, 3}), places({0, 2, 0}));
    for (const OwnedSupport* wrong : {&fewer, &more, &other})
        check_throws([&] { executor.bind_support("S", wrong->view()); }, "a support of another size");
    check_throws([&] { executor.bind_support("T", support.view()); }, "an unknown support");
    executor.bind_support("S", support.view());
    executor.run();
    check(Y[0] == 11 && Y[1] == 14 && Y[2] == 3 && Y[3] == 6, "a sparse product");  // W = (1 0 2; 3 0 0)
    std::string text = kSparse;
    check_throws([&] { Program{Json::parse(text.replace(text.find("[2, 3, 3]"), 9, "[2, 3]"))}; }, "a support without nnz");
}

}  // namespace

int main() {
    test_json();
    test_numbers();
    test_unsound();
    test_limits();
    test_run();
    test_batches();
    test_counters();
    test_collectives();
    test_files();
    test_supports();
    test_sparse();
    return finish("program");
}
