// The core in Python: matgrad._native.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <map>

#include "matgrad/program.h"

namespace nb = nanobind;
using namespace matgrad;

namespace {

constexpr std::chrono::milliseconds kPollInterval(100);  // how often we check whether the user wants to stop

std::string dtype_name(const nb::dlpack::dtype& dtype) {
    const std::string kind = dtype.code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float) ? "float" : "int";
    return kind + std::to_string(dtype.bits);
}

using Array = nb::ndarray<nb::device::cpu, nb::c_contig>;
using ConstArray = nb::ndarray<nb::ro, nb::device::cpu, nb::c_contig>;
using Int64Vector = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::device::cpu, nb::c_contig>;
using Int32Vector = nb::ndarray<const std::int32_t, nb::ndim<1>, nb::device::cpu, nb::c_contig>;

// An executor that keeps the arrays it is bound to alive.
class BoundExecutor {
public:
    BoundExecutor(const std::string& json, std::shared_ptr<ThreadPool> pool, const std::string& instruction_set)
        : executor_(Program(Json::parse(json)), std::move(pool), instruction_set), arrays_(executor_.program().buffers.size()) {}

    // A read-only array can be bound to an input that the program does not change.
    template <class A>
    void bind(const std::string& name, A array) {
        const int i = executor_.program().buffer(name);
        check(name, array, executor_.program().buffers[i].shape);
        executor_.bind(name, array.data());
        arrays_[i] = ConstArray(array);
    }

    void bind_support(const std::string& name, Int64Vector starts, Int32Vector columns, Int64Vector column_starts, Int32Vector rows,
                      Int32Vector positions) {
        const Program& program = executor_.program();
        for (const Value& value : program.values) {
            if (value.operation != "support" || value.name != name) continue;
            const Index K = value.shape[0], D = value.shape[1];
            if (Index(starts.shape(0)) != K + 1 || Index(column_starts.shape(0)) != D + 1 ||
                columns.shape(0) != rows.shape(0) || columns.shape(0) != positions.shape(0) ||
                starts.data()[K] != std::int64_t(columns.shape(0)) || column_starts.data()[D] != std::int64_t(rows.shape(0)))
                throw std::invalid_argument(name + ": the support has a different size from the program's");
            executor_.bind_support(name, {{starts.data(), columns.data(), nullptr, K},
                                          {column_starts.data(), rows.data(), positions.data(), D}});
            supports_.insert_or_assign(name, Arrays{starts, column_starts, columns, rows, positions});
            return;
        }
        throw std::invalid_argument("the program has no support '" + name + "'");
    }

    void run() {
        nb::gil_scoped_release release;
        executor_.run();
    }

    void train(ConstArray X, ConstArray T, ConstArray rates, std::optional<Int64Vector> order, std::optional<Int64Vector> labels,
               nb::object poll) {
        const Program& program = executor_.program();
        const auto rows = [](const ConstArray& A) { return A.ndim() ? Index(A.shape(0)) : 0; };
        const auto columns = [&](const char* name) { return program.buffers[program.buffer(name)].shape.at(1); };
        check("X", X, {rows(X), columns("X")});
        check("T", T, {rows(T), columns("T")});
        check("eta", rates, {rows(rates)});
        for (const auto* indices : {&order, &labels})
            if (*indices && Index((*indices)->shape(0)) != rows(X))
                throw std::invalid_argument("order and labels: expected one per row of X");
        const Examples examples{X.data(), T.data(), rows(X), rows(T), order ? order->data() : nullptr, labels ? labels->data() : nullptr};
        nb::gil_scoped_release release;
        auto last_poll = std::chrono::steady_clock::now();
        Index done = 0;
        executor_.run(examples, rates.data(), rows(rates), [&] {
            ++done;
            if (done < rows(rates) && std::chrono::steady_clock::now() - last_poll < kPollInterval) return;
            nb::gil_scoped_acquire acquire;
            if (PyErr_CheckSignals()) throw nb::python_error();
            if (!poll.is_none()) poll(done);
            last_poll = std::chrono::steady_clock::now();
        });
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

    struct Arrays {
        Int64Vector starts, column_starts;
        Int32Vector columns, rows, positions;
    };
    std::vector<ConstArray> arrays_;
    std::map<std::string, Arrays> supports_;
};

}  // namespace

NB_MODULE(_native, m) {
    m.doc() = "matgrad's C++ core: runs programs on several threads.";
    m.def("instruction_sets", &instruction_sets, "The instruction sets that this machine supports, slowest first.");
    m.def("operations", &operations, "The names of the operations that a program may contain.");
    nb::class_<ThreadPool>(m, "ThreadPool", "Threads that run programs, one at a time.")
        .def(nb::init<int>(), nb::arg("threads"))
        .def_prop_ro("size", &ThreadPool::size, "The number of threads, including the caller's.");
    nb::class_<BoundExecutor>(m, "Executor", "A program with memory; see matgrad.program.")
        .def(nb::init<const std::string&, std::shared_ptr<ThreadPool>, const std::string&>(), nb::arg("program"), nb::arg("pool"),
             nb::arg("instruction_set") = "")
        .def("bind", &BoundExecutor::bind<Array>, nb::arg("name"), nb::arg("array"), "Bind an input to an array.")
        .def("bind_constant", &BoundExecutor::bind<ConstArray>, nb::arg("name"), nb::arg("array"),
             "Bind an input that the program does not change to an array.")
        .def("bind_support", &BoundExecutor::bind_support, nb::arg("name"), nb::arg("starts"), nb::arg("columns"),
             nb::arg("column_starts"), nb::arg("rows"), nb::arg("positions"), "Bind a support to arrays whose content has been checked.")
        .def("run", &BoundExecutor::run, "Run the program once.")
        .def("train", &BoundExecutor::train, nb::arg("X"), nb::arg("T"), nb::arg("rates"), nb::arg("order") = nb::none(),
             nb::arg("labels") = nb::none(), nb::arg("poll") = nb::none(),
             "Run the program on one batch after another, each with its own learning rate. poll(done) is called now and then "
             "with the number of batches done, and at the end; it may raise to stop.")
        .def_prop_rw(
            "timed", [](BoundExecutor& e) { return e.executor_.timed; },
            [](BoundExecutor& e, bool timed) { e.executor_.timed = timed; }, "Whether the seconds of the values are counted.")
        .def_prop_ro(
            "runs", [](BoundExecutor& e) { return e.executor_.runs; }, "How often the program has run so far.")
        .def_prop_ro(
            "seconds", [](BoundExecutor& e) { return e.executor_.seconds; }, "The seconds that each value has taken so far.");
}
