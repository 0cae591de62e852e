// Damages files in many ways, and gives them to the examples, which must refuse them or run:
//
//     fuzz_test FOLDER FIRST LAST
//
// The folder has programs and data for them, NAME.step or NAME.feedforward beside NAME.data. The mutants FIRST, FIRST + 1, …,
// LAST - 1 are written to mutant.program and mutant.data there, and a crash leaves them behind.
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <random>

#define main train_main
#include "../examples/train.cpp"
#undef main
#define main predict_main
#include "../examples/predict.cpp"
#undef main

namespace {

constexpr double kPatience = 5;  // seconds of the processor

using Random = std::mt19937;

std::size_t below(std::size_t n, Random& rng) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(rng); }

template <class Items>
const auto& one_of(const Items& items, Random& rng) {
    return items[below(items.size(), rng)];
}

std::string content_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

void write(const std::string& path, const std::string& content) { std::ofstream(path, std::ios::binary) << content; }

// -- text ---------------------------------------------------------------------------------------------------------

const std::vector<std::string> kNumbers = {"0",
                                           "1",
                                           "2",
                                           "3",
                                           "64",
                                           "-1",
                                           "1.5",
                                           "1e3",
                                           "1e308",
                                           "1e999",
                                           "NaN",
                                           "-Infinity",
                                           "null",
                                           "true",
                                           "65536",
                                           "2147483647",
                                           "2147483648",
                                           "4294967296",
                                           "549755813888",
                                           "9007199254740993",
                                           "4611686018427387904",
                                           "9223372036854775807",
                                           "9223372036854775808",
                                           "[]",
                                           "{}",
                                           "\"N\""};

struct Token {
    std::size_t at, size;
};

// The numbers and strings of a JSON text.
std::vector<Token> tokens(const std::string& text) {
    std::vector<Token> found;
    for (std::size_t i = 0; i < text.size(); ++i) {
        std::size_t end = i;
        if (text[i] == '"')
            end = std::min(text.find('"', i + 1), text.size() - 1) + 1;
        else
            while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) || std::strchr("+-.", text[end])))
                ++end;
        if (end > i) found.push_back({i, end - i}), i = end - 1;
    }
    return found;
}

// The text with another token, in one place or wherever the token is: then sizes may still fit.
void replace_token(std::string& text, Random& rng) {
    const std::vector<Token> all = tokens(text);
    if (all.empty()) return;
    const Token token = one_of(all, rng), other = one_of(all, rng);
    const std::string before = text.substr(token.at, token.size);
    const std::string neighbour = std::to_string(std::atoi(before.substr(0, 9).c_str()) + (below(2, rng) ? 1 : -1));
    const std::string after = below(3, rng) == 0 ? one_of(kNumbers, rng)
                              : below(2, rng)    ? text.substr(other.at, other.size)
                                                 : neighbour;
    if (below(2, rng)) {
        text.replace(token.at, token.size, after);
        return;
    }
    std::string result;
    std::size_t from = 0;
    for (const Token& place : all) {
        if (text.compare(place.at, place.size, before) != 0) continue;
        result += text.substr(from, place.at - from) + after;
        from = place.at + place.size;
    }
    text = result + text.substr(from);
}

// The text with a { … } or [ … ] left out, or twice, or in place of another.
void move_group(std::string& text, Random& rng) {
    std::vector<Token> groups;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '{' && text[i] != '[') continue;
        int depth = 0;
        std::size_t end = i;
        do depth += (text[end] == '{' || text[end] == '[') - (text[end] == '}' || text[end] == ']');
        while (++end < text.size() && depth > 0);
        groups.push_back({i, end - i});
    }
    if (groups.empty()) return;
    const Token group = one_of(groups, rng), other = one_of(groups, rng);
    const std::string moved = text.substr(group.at, group.size);
    switch (below(3, rng)) {
        case 0: text.insert(group.at, moved + ", "); break;
        case 1: text.erase(group.at, std::min(group.size + 2, text.size() - group.at)); break;
        default: text.replace(other.at, other.size, moved);
    }
}

void change_bytes(std::string& bytes, Random& rng) {
    if (bytes.empty()) return;
    const std::size_t at = below(bytes.size(), rng), size = std::min(below(16, rng) + 1, bytes.size() - at);
    switch (below(5, rng)) {
        case 0: bytes[at] = static_cast<char>(bytes[at] ^ 1 << below(8, rng)); break;
        case 1: bytes[at] = static_cast<char>(below(256, rng)); break;
        case 2: bytes.erase(at, size); break;
        case 3: bytes.insert(at, bytes.substr(below(bytes.size(), rng), size)); break;
        default: bytes.resize(below(2, rng) ? at : bytes.size() + size);
    }
}

void change_text(std::string& text, Random& rng) {
    switch (below(8, rng)) {
        case 0: change_bytes(text, rng); break;
        case 1: move_group(text, rng); break;
        default: replace_token(text, rng);
    }
}

// -- files --------------------------------------------------------------------------------------------------------

// A file in parts: the header without the program, the program, and the data.
struct Parts {
    std::string header, program, data;

    explicit Parts(const std::string& path) {
        const std::string content = content_of(path);
        std::uint64_t length = 0;
        std::memcpy(&length, content.data(), 8);
        header = content.substr(8, length);
        data = content.substr(8 + length);
        const Safetensors file = Safetensors::read(path);
        if (!file.metadata.count("matgrad")) return;
        program = file.metadata.at("matgrad");
        const std::string written = json_string(program);
        header.replace(header.find(written), written.size(), "PROGRAM");
    }

    std::string together() const {
        std::string text = header;
        if (const auto at = text.find("PROGRAM"); at != std::string::npos) text.replace(at, 7, json_string(program));
        const std::uint64_t length = text.size();
        return std::string(reinterpret_cast<const char*>(&length), 8) + text + data;
    }
};

// Whole numbers and floats in the data that are hard to digest.
void change_data(std::string& data, Random& rng) {
    static const std::vector<std::int64_t> whole = {0,
                                                    1,
                                                    2,
                                                    7,
                                                    -1,
                                                    1 << 20,
                                                    0x7FFFFFFF,
                                                    -0x7FFFFFFF,
                                                    INT64_MAX,
                                                    INT64_MIN,
                                                    0x7FC00000,
                                                    0x7F800000,
                                                    0x7FF8000000000000,
                                                    0x7FF0000000000000,
                                                    0x0000000100000001};
    const std::size_t size = below(2, rng) ? 4 : 8;
    if (data.size() < size) return;
    const std::int64_t number = one_of(whole, rng);
    std::memcpy(data.data() + below(data.size() / size, rng) * size, &number, size);
}

std::string mutant_of(Parts parts, Random& rng) {
    if (below(4, rng) == 0) {
        std::string content = parts.together();
        for (std::size_t i = below(3, rng) + 1; i > 0; --i) change_bytes(content, rng);
        return content;
    }
    for (std::size_t i = below(3, rng) + 1; i > 0; --i) {
        const std::size_t part = below(parts.program.empty() ? 4 : 10, rng);
        if (part < 2)
            change_text(parts.header, rng);
        else if (part < 4)
            change_data(parts.data, rng);
        else
            change_text(parts.program, rng);
    }
    return parts.together();
}

// -- runs ---------------------------------------------------------------------------------------------------------

struct Seed {
    Parts program, data;
    bool is_step;
};

std::vector<Seed> seeds_in(const std::string& folder) {
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    std::vector<Seed> seeds;
    for (std::filesystem::path path : paths) {
        const bool is_step = path.extension() == ".step";
        if (!is_step && path.extension() != ".feedforward") continue;
        const Parts program(path.string()), data(path.replace_extension(".data").string());
        seeds.push_back({program, data, is_step});
    }
    return seeds;
}

// Whether the example has run; it must not fail in another way than by refusing the files in one line.
bool has_run(bool is_step, const std::string& folder) {
    std::string words[] = {"example", folder + "/mutant.program", folder + "/mutant.data", folder + "/mutant.result", "--threads",
                           "2"};
    char* pointers[6];
    for (int i = 0; i < 6; ++i) pointers[i] = words[i].data();
    try {
        (is_step ? train : predict)(6, pointers);
        return true;
    } catch (const std::invalid_argument& error) {
        const std::string message = error.what();
        if (message.empty() || message.size() > 1000 || message.find('\n') != std::string::npos)
            throw std::runtime_error("expected a message of one line, found " + message);
        return false;
    }
}

bool fuzz(const std::string& folder, unsigned first, unsigned last) {
    const std::vector<Seed> seeds = seeds_in(folder);
    int runs = 0, failures = 0;
    double longest = 0;
    for (unsigned i = first; i < last; ++i) {
        Random rng(i);
        const Seed& seed = one_of(seeds, rng);
        const bool is_program = below(4, rng) != 0;
        write(folder + "/mutant.program", is_program ? mutant_of(seed.program, rng) : seed.program.together());
        write(folder + "/mutant.data", is_program ? seed.data.together() : mutant_of(seed.data, rng));
        const std::clock_t start = std::clock();
        try {
            runs += has_run(seed.is_step, folder);
        } catch (const std::exception& error) {
            std::fprintf(stderr, "FAILED: mutant %u: %s\n", i, error.what());
            ++failures;
        }
        const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
        longest = std::max(longest, seconds);
        if (seconds > kPatience) std::fprintf(stderr, "FAILED: mutant %u takes %.1f s\n", i, seconds), ++failures;
    }
    std::fprintf(stderr, "%u mutants: %d run, the others are refused, in at most %.1f s\n", last - first, runs, longest);
    return failures == 0 && runs > 0;
}

}  // namespace

int main(int count, char** words) {
    if (count != 4 || !std::freopen("/dev/null", "w", stdout)) return 2;
    return fuzz(words[1], static_cast<unsigned>(std::stoul(words[2])), static_cast<unsigned>(std::stoul(words[3]))) ? 0 : 1;
}
