#include "matgrad/safetensors.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <stdexcept>

#include "matgrad/atomic_file.h"

namespace matgrad {

namespace {

const std::map<std::string, std::string> kDtypes = {
    {"F32", "float32"}, {"F64", "float64"}, {"I32", "int32"}, {"I64", "int64"}};

Tensor tensor(const std::string& name, const Json& entry, const std::vector<char>& content, std::size_t start) {
    const auto dtype = kDtypes.find(entry.at("dtype").string());
    if (dtype == kDtypes.end()) throw std::invalid_argument(name + ": unknown dtype " + entry.at("dtype").string());
    Tensor result{dtype->second, {}, {}};
    const std::size_t size = content.size() - start;
    std::size_t bytes = element_size(result.dtype);
    for (const auto& n : entry.at("shape").array()) {
        result.shape.push_back(static_cast<Index>(n.integer()));
        if (n.integer() < 0 || (n.integer() > 0 && bytes > size / static_cast<std::size_t>(n.integer())))
            throw std::invalid_argument(name + ": its shape does not fit the file");
        bytes *= static_cast<std::size_t>(n.integer());
    }
    const long long first = entry.at("data_offsets").array().at(0).integer();
    const long long last = entry.at("data_offsets").array().at(1).integer();
    if (first < 0 || last < first || static_cast<std::size_t>(last) > size || static_cast<std::size_t>(last - first) != bytes)
        throw std::invalid_argument(name + ": its place in the file does not fit its shape");
    result.data.resize(bytes);
    std::memcpy(result.data.data(), content.data() + start + first, bytes);
    return result;
}

// The result of the function; its errors get the name of the file.
template <class Function>
auto about(const std::string& path, Function function) {
    try {
        return function();
    } catch (const std::logic_error& error) {  // also std::out_of_range, for a list that is too short
        const std::string message = error.what();
        throw std::invalid_argument(message.starts_with(path + ": ") ? message : path + ": " + message);
    }
}

std::vector<char> bytes_of(const std::string& path) {
    if (!std::filesystem::exists(path)) throw std::invalid_argument("no such file");
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    const std::streamoff size = std::filesystem::is_regular_file(path) && file ? std::streamoff(file.tellg()) : -1;
    if (size < 0) throw std::invalid_argument("cannot be read");
    std::vector<char> content(static_cast<std::size_t>(size));
    file.seekg(0);
    if (!file.read(content.data(), size)) throw std::invalid_argument("cannot be read");
    return content;
}

// The JSON table at the start of a file: where its tensors are, and the metadata; padded with spaces to a multiple of 8 bytes.
std::string header(const Safetensors& file) {
    std::string members;
    std::size_t offset = 0;
    const auto add = [](std::string& to, const std::string& name, const std::string& value) {
        to += (to.empty() ? "" : ",") + json_string(name) + ":" + value;
    };
    for (const auto& [key, value] : file.metadata) add(members, key, json_string(value));
    std::string result;
    if (!members.empty()) add(result, "__metadata__", "{" + members + "}");
    for (const auto& [name, tensor] : file.tensors) {
        std::string dtype, shape;
        for (const auto& [theirs, ours] : kDtypes)
            if (ours == tensor.dtype) dtype = theirs;
        for (Index n : tensor.shape) shape += (shape.empty() ? "" : ",") + std::to_string(n);
        const std::size_t end = offset + tensor.data.size();
        add(result, name, "{\"dtype\":\"" + dtype + "\",\"shape\":[" + shape + "],\"data_offsets\":[" +
                              std::to_string(offset) + "," + std::to_string(end) + "]}");
        offset = end;
    }
    result = "{" + result + "}";
    result.append((8 - result.size() % 8) % 8, ' ');
    return result;
}

Program program_of(const Safetensors& file) {
    const auto text = file.metadata.find("matgrad");
    if (text == file.metadata.end())
        throw std::invalid_argument("there is no program in it; expected a file of `matgrad program --save`");
    return Program(Json::parse(text->second));
}

}  // namespace

template <class T>
const T* Tensor::as(const char* expected) const {
    if (dtype != expected) throw std::invalid_argument(std::string("expected ") + expected + ", found " + dtype);
    return reinterpret_cast<const T*>(data.data());
}
template const float* Tensor::as<float>(const char*) const;
template const double* Tensor::as<double>(const char*) const;
template const std::int32_t* Tensor::as<std::int32_t>(const char*) const;
template const std::int64_t* Tensor::as<std::int64_t>(const char*) const;

std::string in_words(const Shape& shape, const std::string& dtype) {
    std::string sizes;
    for (Index n : shape) sizes += (sizes.empty() ? "" : " × ") + std::to_string(n);
    return (sizes.empty() ? "a scalar" : sizes) + " " + dtype;
}

Safetensors Safetensors::read(const std::string& path) {
    return about(path, [&] {
        const std::vector<char> content = bytes_of(path);
        std::uint64_t length = 0;
        if (content.size() >= 8) std::memcpy(&length, content.data(), 8);
        if (content.size() < 8 || length > content.size() - 8)
            throw std::invalid_argument("not a safetensors file, or a damaged one");
        Safetensors result;
        result.path = path;
        const Json header = Json::parse(std::string_view(content.data() + 8, length));
        for (const auto& [name, entry] : header.object()) {
            if (name == "__metadata__")
                for (const auto& [key, value] : entry.object()) result.metadata[key] = value.string();
            else
                result.tensors[name] = tensor(name, entry, content, 8 + length);
        }
        return result;
    });
}

const Tensor& Safetensors::at(const std::string& name) const {
    const auto found = tensors.find(name);
    if (found != tensors.end()) return found->second;
    std::string names;
    for (const auto& [other, tensor] : tensors) names += (names.empty() ? "" : ", ") + other;
    throw std::invalid_argument(path + ": no tensor " + name + " in it; found " + (names.empty() ? "none" : names));
}

void Safetensors::write(const std::string& path) const {
    const std::string text = header(*this);
    const std::uint64_t length = text.size();
    std::vector<std::span<const std::byte>> parts{std::as_bytes(std::span(&length, 1)), std::as_bytes(std::span(text))};
    for (const auto& [name, tensor] : tensors) parts.emplace_back(tensor.data);
    replace_file(path, parts);
}

OwnedSupport::OwnedSupport(Index rows, Index columns, const Tensor& starts, const Tensor& places)
    : rows_(rows), columns_(columns) {
    const std::int64_t* s = starts.as<std::int64_t>("int64");
    const std::int32_t* c = places.as<std::int32_t>("int32");
    const Index count = places.shape.size() == 1 ? places.shape[0] : -1;
    if (starts.shape != std::vector<Index>{rows + 1} || count < 0 || s[0] != 0 || s[rows] != count)
        throw std::invalid_argument("a support: its index does not fit its size");
    for (Index i = 0; i < rows; ++i) {
        if (s[i + 1] < s[i] || s[i + 1] > count) throw std::invalid_argument("a support: the starts of its rows are not in order");
        for (std::int64_t p = s[i]; p < s[i + 1]; ++p)
            if (c[p] < 0 || c[p] >= columns || (p > s[i] && c[p] <= c[p - 1]))
                throw std::invalid_argument("a support: the columns of a row are not in order");
    }
    starts_.assign(s, s + rows + 1);
    columns_of_.assign(c, c + count);
    column_starts_.assign(columns + 1, 0);
    rows_of_.resize(count);
    positions_.resize(count);
    for (std::int32_t column : columns_of_) ++column_starts_[column + 1];
    for (Index j = 0; j < columns; ++j) column_starts_[j + 1] += column_starts_[j];
    std::vector<std::int64_t> next(column_starts_.begin(), column_starts_.end() - 1);
    for (Index i = 0; i < rows; ++i)
        for (std::int64_t p = starts_[i]; p < starts_[i + 1]; ++p) {
            const std::int64_t place = next[columns_of_[p]]++;
            rows_of_[place] = static_cast<std::int32_t>(i);
            positions_[place] = static_cast<std::int32_t>(p);
        }
}

Support OwnedSupport::view() const {
    return {{starts_.data(), columns_of_.data(), nullptr, rows_},
            {column_starts_.data(), rows_of_.data(), positions_.data(), columns_}};
}

SavedProgram::SavedProgram(const std::string& path, std::shared_ptr<ThreadPool> pool)
    : file(Safetensors::read(path)), executor(about(path, [&] { return program_of(file); }), std::move(pool)) {
    about(path, [&] { bind(); });
}

void SavedProgram::bind() {
    const Program& program = executor.program();
    for (const Value& value : program.values) {
        if (value.operation != "support") continue;
        supports_.emplace_back(value.shape[0], value.shape[1], file.at(value.name + ".starts"), file.at(value.name + ".columns"));
        executor.bind_support(value.name, supports_.back().view());
    }
    for (const Buffer& buffer : program.buffers) {
        const bool is_state = buffer.name.find('.') != std::string::npos;  // 1.W, not X
        if (buffer.name.empty() || (!is_state && !file.tensors.count(buffer.name))) continue;
        const Tensor& tensor = file.at(buffer.name);
        if (tensor.shape != buffer.shape || tensor.dtype != buffer.dtype)
            throw std::invalid_argument(buffer.name + " is " + in_words(tensor.shape, tensor.dtype) + ", expected " +
                                        in_words(buffer.shape, buffer.dtype));
        executor.bind(buffer.name, file.tensors[buffer.name].data.data());
    }
}

}  // namespace matgrad
