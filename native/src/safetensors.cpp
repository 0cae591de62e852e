#include "matgrad/safetensors.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <span>

#include "matgrad/atomic_file.h"
#include "matgrad/errors.h"

namespace matgrad {

namespace {

const std::map<std::string, std::string> kDtypes = {{"F32", "float32"}, {"F64", "float64"}, {"I32", "int32"}, {"I64", "int64"}};

constexpr std::uint64_t kLongestHeader = 16 << 20;
constexpr std::size_t kLongestList = 200;  // of names in a message

// An array as the header describes it, without data, and the bytes [first, last) of the data that it has.
struct Entry {
    std::string name;
    Tensor tensor;
    std::int64_t first, last;
};

Entry entry_of(const std::string& name, const Json& line) {
    const auto dtype = kDtypes.find(line.at("dtype").string());
    if (dtype == kDtypes.end()) refuse("unknown dtype '" + readable(line.at("dtype").string()) + "'");
    const Json::Array& offsets = line.at("data_offsets").array();
    if (offsets.size() != 2) refuse("expected two offsets");
    Entry entry{name, {dtype->second, {}, {}}, offsets[0].integer(), offsets[1].integer()};
    Index bytes = static_cast<Index>(element_size(dtype->second));
    for (const Json& n : line.at("shape").array()) {
        if (n.integer() < 0) refuse("a negative size");
        entry.tensor.shape.push_back(static_cast<Index>(n.integer()));
    }
    for (Index n : entry.tensor.shape) bytes = checked_product({bytes, n});
    if (entry.first < 0 || entry.last < entry.first || entry.last - entry.first != bytes)
        refuse("its place in the file does not fit its shape");
    return entry;
}

// A file at its start, and its size.
std::pair<std::ifstream, std::uint64_t> opened(const std::string& path) {
    std::error_code error;
    if (!std::filesystem::exists(path, error)) refuse("no such file");
    const bool is_file = std::filesystem::is_regular_file(path, error);  // no folder, and no device that never ends
    const std::uintmax_t size = is_file ? std::filesystem::file_size(path, error) : 0;
    std::pair<std::ifstream, std::uint64_t> result{is_file ? std::ifstream(path, std::ios::binary) : std::ifstream(), size};
    if (!result.first.is_open() || error) refuse("cannot be read");
    Limits::of_machine().check_memory(static_cast<std::ptrdiff_t>(size), "the file");
    return result;
}

// The next bytes of a file.
void read_into(std::ifstream& file, void* to, std::size_t size) {
    if (!file.read(static_cast<char*>(to), static_cast<std::streamsize>(size))) refuse("cannot be read");
}

// The JSON table at the start of a file, which has this size.
Json header_of(std::ifstream& file, std::uint64_t size, std::uint64_t& data_size) {
    std::uint64_t length = 0;
    if (size >= 8) read_into(file, &length, 8);
    if (size < 8 || length > size - 8) refuse("not a safetensors file, or a damaged one");
    if (length > kLongestHeader)
        refuse("expected a header of at most " + std::to_string(kLongestHeader) + " bytes, found " + std::to_string(length));
    std::string text(length, ' ');
    read_into(file, text.data(), length);
    data_size = size - 8 - length;
    return Json::parse(text);
}

// The arrays in the order of their data, which has neither holes nor overlaps.
std::vector<Entry> entries_of(const Json& header, std::uint64_t data_size) {
    std::vector<Entry> entries;
    for (const auto& [name, line] : header.object())
        if (name != "__metadata__")
            entries.push_back(about(readable(name), [&, &name = name, &line = line] { return entry_of(name, line); }));
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return std::pair(a.first, a.last) < std::pair(b.first, b.last); });
    std::int64_t end = 0;
    for (const Entry& entry : entries) {
        if (entry.first != end)
            refuse(readable(entry.name) + ": its data begins at " + std::to_string(entry.first) + ", expected " +
                   std::to_string(end));
        end = entry.last;
    }
    if (static_cast<std::uint64_t>(end) != data_size)
        refuse("expected " + std::to_string(end) + " bytes of data, found " + std::to_string(data_size));
    return entries;
}

// The JSON table at the start of a file to write: where its tensors are, and the metadata; padded with spaces to a multiple of 8 bytes.
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
        add(result, name,
            "{\"dtype\":\"" + dtype + "\",\"shape\":[" + shape + "],\"data_offsets\":[" + std::to_string(offset) + "," +
                std::to_string(end) + "]}");
        offset = end;
    }
    result = "{" + result + "}";
    result.append((8 - result.size() % 8) % 8, ' ');
    return result;
}

Program program_of(const Safetensors& file) {
    if (!file.metadata.count("matgrad")) refuse("there is no program in it; expected a file of `matgrad program --save`");
    return Program(file.json("matgrad"), Limits::of_file(std::filesystem::file_size(file.path)));
}

}  // namespace

template <class T>
const T* Tensor::as(const char* expected) const {
    if (dtype != expected) refuse(std::string("expected ") + expected + ", found " + dtype);
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
        auto [file, size] = opened(path);
        std::uint64_t data_size = 0;
        const Json header = header_of(file, size, data_size);
        Safetensors result;
        result.path = path;
        if (header.has("__metadata__"))
            for (const auto& [key, value] : header.at("__metadata__").object()) result.metadata[key] = value.string();
        for (Entry& entry : entries_of(header, data_size)) {
            entry.tensor.data.resize(static_cast<std::size_t>(entry.last - entry.first));
            read_into(file, entry.tensor.data.data(), entry.tensor.data.size());
            result.tensors[entry.name] = std::move(entry.tensor);
        }
        return result;
    });
}

const Tensor& Safetensors::at(const std::string& name) const {
    const auto found = tensors.find(name);
    if (found != tensors.end()) return found->second;
    std::string names;
    for (const auto& [other, tensor] : tensors) {
        names += (names.empty() ? "" : ", ") + readable(other);
        if (names.size() < kLongestList) continue;
        names += " …";
        break;
    }
    refuse(path + ": no tensor " + readable(name) + " in it; found " + (names.empty() ? "none" : names));
}

Json Safetensors::json(const std::string& key) const {
    const auto found = metadata.find(key);
    if (found == metadata.end()) refuse(path + ": no " + key + " in its metadata");
    return about(path, [&] { return Json::parse(found->second); });
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
        refuse("its index does not fit its size");
    for (Index i = 0; i < rows; ++i) {
        if (s[i + 1] < s[i] || s[i + 1] > count) refuse("the starts of its rows are not in order");
        for (std::int64_t p = s[i]; p < s[i + 1]; ++p)
            if (c[p] < 0 || c[p] >= columns || (p > s[i] && c[p] <= c[p - 1])) refuse("the columns of a row are not in order");
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
    : file(Safetensors::read(path)), executor(about(path, [&] { return Executor(program_of(file), std::move(pool)); })) {
    about(path, [&] { bind(); });
}

void SavedProgram::bind() {
    const Program& program = executor.program();
    for (const auto& [name, shape] : program.supports) {
        const Tensor &starts = file.at(name + ".starts"), &columns = file.at(name + ".columns");
        about(readable(name), [&, &shape = shape] { supports_.emplace_back(shape[0], shape[1], starts, columns); });
        executor.bind_support(name, supports_.back().view());
    }
    for (const Buffer& buffer : program.buffers) {
        const bool is_state = buffer.name.find('.') != std::string::npos;  // 1.W, not X
        if (buffer.name.empty() || (!is_state && !file.tensors.count(buffer.name))) continue;
        const Tensor& tensor = file.at(buffer.name);
        if (tensor.shape != buffer.shape || tensor.dtype != buffer.dtype)
            refuse(readable(buffer.name) + " is " + in_words(tensor.shape, tensor.dtype) + ", expected " +
                   in_words(buffer.shape, buffer.dtype));
        executor.bind(buffer.name, file.tensors[buffer.name].data.data());
    }
}

}  // namespace matgrad
