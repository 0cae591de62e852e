// The core in Python: matgrad._native.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>

#include "matgrad/cores.h"
#include "matgrad/largest.h"
#include "matgrad/program.h"

namespace nb = nanobind;
using namespace matgrad;

namespace {

constexpr std::chrono::milliseconds kPollInterval(100);  // how often we check whether the user wants to stop

std::string dtype_name(const nb::dlpack::dtype& dtype) {
    const auto is = [&](nb::dlpack::dtype_code code) { return dtype.code == static_cast<std::uint8_t>(code); };
    const char* kind = is(nb::dlpack::dtype_code::Float) ? "float" : is(nb::dlpack::dtype_code::Int) ? "int" : "another kind of ";
    return kind + std::to_string(dtype.bits);
}

using Array = nb::ndarray<nb::device::cpu, nb::c_contig>;
using ConstArray = nb::ndarray<nb::ro, nb::device::cpu, nb::c_contig>;
using Int64Vector = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::device::cpu, nb::c_contig>;
using Int32Vector = nb::ndarray<const std::int32_t, nb::ndim<1>, nb::device::cpu, nb::c_contig>;

// The caller's array itself: never a copy, which nanobind would make of one with another layout or dtype.
template <class A>
A imported(const std::string& name, nb::handle array, const std::string& expected) {
    A result;
    if (!nb::try_cast(array, result, false))
        throw std::invalid_argument(name + ": expected " + expected +
                                    ", with its elements one after another, in the memory of the CPU");
    return result;
}

template <class Vector>
Vector indices(const std::string& name, nb::handle array) {
    return imported<Vector>(name, array, "a vector of " + dtype_name(nb::dtype<typename Vector::Scalar>()));
}

std::optional<Int64Vector> optional_indices(const std::string& name, nb::handle array) {
    if (array.is_none()) return {};
    return indices<Int64Vector>(name, array);
}

// An executor that keeps the arrays it is bound to alive. Threads use it in turn.
class BoundExecutor {
public:
    BoundExecutor(const std::string& json, std::shared_ptr<ThreadPool> pool, const std::string& instruction_set)
        : executor_(Program(Json::parse(json)), std::move(pool), instruction_set), arrays_(executor_.program().buffers.size()) {}

    void bind(const std::string& name, nb::handle array) {
        const auto bound = [&](auto imported_array) {
            Turn turn(*this);
            bind_array(name, imported_array);
        };
        if (const Program& program = executor_.program(); program.writes(program.buffer(name)))
            bound(imported<Array>(name, array, "an array that can be changed"));
        else
            bound(imported<ConstArray>(name, array, "an array"));
    }

    void bind_support(const std::string& name, nb::handle starts, nb::handle columns, nb::handle column_starts, nb::handle rows,
                      nb::handle positions) {
        Arrays arrays{indices<Int64Vector>(name + " starts", starts),
                      indices<Int64Vector>(name + " column_starts", column_starts),
                      indices<Int32Vector>(name + " columns", columns), indices<Int32Vector>(name + " rows", rows),
                      indices<Int32Vector>(name + " positions", positions)};
        Turn turn(*this);
        for (const Value& value : executor_.program().values) {
            if (value.operation != Op::support || value.name != name) continue;
            executor_.bind_support(name, arrays.support(name, value.shape));
            supports_.insert_or_assign(name, std::move(arrays));
            return;
        }
        throw std::invalid_argument("the program has no support '" + name + "'");
    }

    // Binds inputs that the program does not change, and outputs, and runs it, all in one turn. The values of a sparse X come
    // with the starts of its rows and the columns of its elements.
    void run(nb::dict inputs, nb::dict outputs, nb::handle starts_of_rows, nb::handle columns_of_elements) {
        const auto rows = sparse_rows(starts_of_rows, columns_of_elements);
        std::map<std::string, ConstArray> constants;
        std::map<std::string, Array> results;
        for (const auto& [key, array] : inputs) {
            const auto name = nb::cast<std::string>(key);
            constants.emplace(name, imported<ConstArray>(name, array, "an array"));
        }
        for (const auto& [key, array] : outputs) {
            const auto name = nb::cast<std::string>(key);
            results.emplace(name, imported<Array>(name, array, "an array that can be changed"));
        }
        Turn turn(*this);
        if (rows) {
            const auto X = constants.extract("X");
            if (!X) throw std::invalid_argument("X: expected the values of the examples, found none");
            executor_.bind_examples(rows->examples(checked_values(X.mapped(), *rows)));
        }
        for (auto& [name, array] : constants) bind_array(name, array);
        for (auto& [name, array] : results) bind_array(name, array);
        executor_.run();
    }

    void train(nb::handle inputs, nb::handle targets, nb::handle learning_rates, nb::handle order_of_rows, nb::handle classes,
               nb::handle weights_of_rows, nb::object poll, bool every_batch, nb::handle starts_of_rows,
               nb::handle columns_of_elements) {
        const auto X = imported<ConstArray>("X", inputs, "an array"), T = imported<ConstArray>("T", targets, "an array"),
                   rates = imported<ConstArray>("eta", learning_rates, "an array");
        const auto order = optional_indices("order", order_of_rows), labels = optional_indices("labels", classes);
        const Program& program = executor_.program();
        const auto rows = [](const ConstArray& A) { return A.ndim() ? Index(A.shape(0)) : 0; };
        const auto columns = [&](const char* name) { return program.buffers[program.buffer(name)].shape.at(1); };
        const auto sparse = sparse_rows(starts_of_rows, columns_of_elements);
        if (!sparse) check("X", X, {rows(X), columns("X")});
        check("T", T, {rows(T), columns("T")});
        check("eta", rates, {rows(rates)});
        Examples examples = sparse ? sparse->examples(checked_values(X, *sparse)) : Examples{X.data(), nullptr, rows(X), 0};
        for (const auto* indices : {&order, &labels})
            if (*indices && Index((*indices)->shape(0)) != examples.size)
                throw std::invalid_argument("order and labels: expected one per row of X");
        examples.T = T.data(), examples.targets = rows(T);
        std::optional<ConstArray> weights;
        if (!weights_of_rows.is_none()) {
            weights = imported<ConstArray>("s", weights_of_rows, "an array");
            check("s", *weights, {examples.size, 1});
            examples.weights = weights->data();
        }
        examples.order = order ? order->data() : nullptr, examples.labels = labels ? labels->data() : nullptr;
        Turn turn(*this);
        auto last_poll = std::chrono::steady_clock::now();
        Index done = 0;
        executor_.run(examples, rates.data(), rows(rates), [&] {
            ++done;
            if (!every_batch && done < rows(rates) && std::chrono::steady_clock::now() - last_poll < kPollInterval) return;
            nb::gil_scoped_acquire acquire;
            if (PyErr_CheckSignals()) throw nb::python_error();
            if (!poll.is_none()) poll(done);
            last_poll = std::chrono::steady_clock::now();
        });
    }

    const nb::object& collective() const { return collective_; }

    void set_collective(nb::object function) {
        Turn turn(*this);
        nb::gil_scoped_acquire acquire;
        std::swap(collective_, function);  // the old one is given up after the turn
        executor_.collective = nullptr;
        if (collective_.is_none()) return;
        executor_.collective = [this](int value) {
            nb::gil_scoped_acquire within;
            collective_(value);
        };
    }

    Executor executor_;

private:
    template <class A>
    void check(const std::string& name, const A& array, const Shape& expected) const {
        const Program& program = executor_.program();
        Shape shape(array.ndim());
        for (std::size_t k = 0; k < array.ndim(); ++k) shape[k] = static_cast<Index>(array.shape(k));
        if (shape != expected || dtype_name(array.dtype()) != program.buffers[program.buffer(name)].dtype)
            throw std::invalid_argument(name + ": the array has a different shape or dtype from the program's");
    }

    // A read-only array can be bound to an input that the program does not change.
    template <class A>
    void bind_array(const std::string& name, A& array) {
        const int i = executor_.program().buffer(name);
        check(name, array, executor_.program().buffers[i].shape);
        executor_.bind(name, array.data());
        arrays_[i] = ConstArray(array);
    }

    // Where the elements of sparse examples are: as many columns as the starts of the rows say.
    struct Rows {
        Int64Vector starts;
        Int32Vector columns;

        Examples examples(const void* values) const {
            Examples examples{values, nullptr, Index(starts.shape(0)) - 1, 0};
            examples.starts = starts.data(), examples.columns = columns.data();
            return examples;
        }
    };

    static std::optional<Rows> sparse_rows(nb::handle starts_of_rows, nb::handle columns_of_elements) {
        if (starts_of_rows.is_none() && columns_of_elements.is_none()) return {};
        Rows rows{indices<Int64Vector>("X starts", starts_of_rows), indices<Int32Vector>("X columns", columns_of_elements)};
        const auto count = rows.starts.shape(0);
        if (count < 2 || rows.starts.data()[0] != 0 || rows.starts.data()[count - 1] != std::int64_t(rows.columns.shape(0)))
            throw std::invalid_argument("X: expected rows that start with element 0 and end with the last one");
        return rows;
    }

    // The values of sparse examples, one for each column.
    const void* checked_values(const ConstArray& X, const Rows& rows) const {
        const bool fits = X.ndim() == 2 && X.shape(0) == 1 && X.shape(1) == rows.columns.shape(0);
        if (!fits || dtype_name(X.dtype()) != executor_.program().dtype)
            throw std::invalid_argument("X: expected one value of " + executor_.program().dtype + " for each element");
        return X.data();
    }

    struct Arrays {
        Int64Vector starts, column_starts;
        Int32Vector columns, rows, positions;

        Support support(const std::string& name, const Shape& shape) const {
            const Index K = shape[0], D = shape[1];
            if (Index(starts.shape(0)) != K + 1 || Index(column_starts.shape(0)) != D + 1 || columns.shape(0) != rows.shape(0) ||
                columns.shape(0) != positions.shape(0) || starts.data()[K] != std::int64_t(columns.shape(0)) ||
                column_starts.data()[D] != std::int64_t(rows.shape(0)))
                throw std::invalid_argument(name + ": the support has a different size from the program's");
            return {{starts.data(), columns.data(), nullptr, K}, {column_starts.data(), rows.data(), positions.data(), D}};
        }
    };

    // While it lives, its thread alone uses the executor, without the GIL; other threads wait for their turn. A thread that
    // would wait for itself, in `poll` or `collective`, or for a thread that a fork has left behind, gets an error.
    class Turn {
    public:
        explicit Turn(BoundExecutor& executor) : executor_(executor) {
            const std::thread::id user = executor.user_;
            if (user == std::this_thread::get_id())
                throw std::runtime_error("the program is running: it cannot be used by what it calls");
            if (user != std::thread::id() && executor.forks_ != forks())
                throw std::runtime_error("the program was running in another thread when this process was forked");
            executor.mutex_.lock();
            executor.user_ = std::this_thread::get_id();
            executor.forks_ = forks();
        }
        ~Turn() {
            executor_.user_ = std::thread::id();
            executor_.mutex_.unlock();
        }
        Turn(const Turn&) = delete;
        Turn& operator=(const Turn&) = delete;

    private:
        nb::gil_scoped_release release_;
        BoundExecutor& executor_;
    };

    std::mutex mutex_;
    std::atomic<std::thread::id> user_{};  // the thread whose turn it is
    std::atomic<unsigned> forks_{0};       // and its process
    std::vector<ConstArray> arrays_;
    nb::object collective_ = nb::none();
    std::map<std::string, Arrays> supports_;
};

// What an executor calls may refer to the executor: so that Python can give up both.
int traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    if (nb::inst_ready(self)) Py_VISIT(nb::inst_ptr<BoundExecutor>(self)->collective().ptr());
    return 0;
}

int clear(PyObject* self) {
    nb::inst_ptr<BoundExecutor>(self)->set_collective(nb::none());
    return 0;
}

PyType_Slot slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)}, {Py_tp_clear, reinterpret_cast<void*>(clear)}, {0, nullptr}};

// The positions of the largest elements of A B; see matgrad/largest.h.
template <class T>
std::vector<std::int64_t> largest_of(const ConstArray& A, const ConstArray& B, const SparseIndex& taken, Index count,
                                     ThreadPool& pool) {
    const auto view = [](const ConstArray& X) {
        return View<const T>{static_cast<const T*>(X.data()), Index(X.shape(0)), Index(X.shape(1)), Index(X.shape(1)), 1};
    };
    return largest_products<T>(view(A), view(B), taken, count, pool);
}

nb::object largest(nb::handle left, nb::handle right, nb::handle starts, nb::handle columns, Index count, ThreadPool& pool) {
    const auto A = imported<ConstArray>("A", left, "a matrix"), B = imported<ConstArray>("B", right, "a matrix");
    const auto rows = indices<Int64Vector>("starts", starts);
    const auto taken = indices<Int32Vector>("columns", columns);
    const std::string dtype = dtype_name(A.dtype());
    if (A.ndim() != 2 || B.ndim() != 2 || A.shape(1) != B.shape(0) || dtype_name(B.dtype()) != dtype ||
        (dtype != "float32" && dtype != "float64"))
        throw std::invalid_argument("expected a K×N matrix A and an N×D matrix B of float32 or float64");
    const Index K = A.shape(0), D = B.shape(1), nnz = taken.shape(0);
    if (Index(rows.shape(0)) != K + 1 || rows.data()[0] != 0 || rows.data()[K] != nnz || count < 0 || count > K * D - nnz)
        throw std::invalid_argument("expected a K×D support, and a count of at most K·D - nnz");
    for (Index i = 0; i < K; ++i)
        if (rows.data()[i] > rows.data()[i + 1]) throw std::invalid_argument("starts: expected numbers that do not decrease");
    for (Index p = 0; p < nnz; ++p)
        if (taken.data()[p] < 0 || taken.data()[p] >= D) throw std::invalid_argument("columns: expected numbers below D");
    const SparseIndex index{rows.data(), taken.data(), nullptr, K};
    std::vector<std::int64_t> positions;
    {
        nb::gil_scoped_release release;
        positions =
            dtype == "float32" ? largest_of<float>(A, B, index, count, pool) : largest_of<double>(A, B, index, count, pool);
    }
    auto* kept = new std::vector<std::int64_t>(std::move(positions));
    nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<std::int64_t>*>(p); });
    return nb::cast(nb::ndarray<nb::numpy, std::int64_t, nb::ndim<1>>(kept->data(), {kept->size()}, owner));
}

}  // namespace

NB_MODULE(_native, m) {
    m.doc() = "matgrad's C++ core: runs programs on several threads.";
    m.def("instruction_sets", &instruction_sets, "The instruction sets that this machine supports, slowest first.");
    m.def("cores", &cores, nb::arg("root") = "", "The number of cores that this process may use; see matgrad/cores.h.");
    m.def("operations", &operations, "The names of the operations that a program may contain.");
    m.def("largest_products", &largest, nb::arg("A"), nb::arg("B"), nb::arg("starts"), nb::arg("columns"), nb::arg("count"),
          nb::arg("pool"), "The positions i·D + j of the largest |(A B)_ij| that a support does not have, in increasing order.");
    nb::class_<ThreadPool>(m, "ThreadPool", "Threads that run programs, one at a time.")
        .def(nb::init<int>(), nb::arg("threads"))
        .def_prop_ro("size", &ThreadPool::size, "The number of threads, including the caller's.");
    nb::class_<BoundExecutor>(m, "Executor", nb::type_slots(slots), "A program with memory; see matgrad.program.")
        .def(nb::init<const std::string&, std::shared_ptr<ThreadPool>, const std::string&>(), nb::arg("program"), nb::arg("pool"),
             nb::arg("instruction_set") = "")
        .def("bind", &BoundExecutor::bind, nb::arg("name"), nb::arg("array"), "Bind an input to an array.")
        .def("bind_support", &BoundExecutor::bind_support, nb::arg("name"), nb::arg("starts"), nb::arg("columns"),
             nb::arg("column_starts"), nb::arg("rows"), nb::arg("positions"),
             "Bind a support to arrays whose content has been checked.")
        .def("run", &BoundExecutor::run, nb::arg("inputs") = nb::dict(), nb::arg("outputs") = nb::dict(),
             nb::arg("starts") = nb::none(), nb::arg("columns") = nb::none(),
             "Run the program once, with these arrays as inputs that it does not change and as outputs. If X is sparse, it has "
             "the values of the elements, which come with the starts of the rows and the columns of the elements.")
        .def("train", &BoundExecutor::train, nb::arg("X"), nb::arg("T"), nb::arg("rates"), nb::arg("order") = nb::none(),
             nb::arg("labels") = nb::none(), nb::arg("weights") = nb::none(), nb::arg("poll") = nb::none(),
             nb::arg("every_batch") = false, nb::arg("starts") = nb::none(), nb::arg("columns") = nb::none(),
             "Run the program on one batch after another, each with its own learning rate. poll(done) is called now and then, or "
             "after every batch, with the number of batches done, and at the end; it may raise to stop.")
        .def_prop_rw(
            "collective", &BoundExecutor::collective, &BoundExecutor::set_collective, nb::for_setter(nb::arg("function").none()),
            "What is called with the index of every value that is a collective, while the program waits; see matgrad/program.h.")
        .def_prop_rw(
            "timed", [](BoundExecutor& e) { return e.executor_.timed; },
            [](BoundExecutor& e, bool timed) { e.executor_.timed = timed; }, "Whether the seconds of the values are counted.")
        .def_prop_ro(
            "runs", [](BoundExecutor& e) { return e.executor_.runs; }, "How often the program has run so far.")
        .def_prop_ro(
            "seconds", [](BoundExecutor& e) { return e.executor_.seconds; }, "The seconds that each value has taken so far.");
}
