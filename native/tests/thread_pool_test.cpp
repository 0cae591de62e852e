// The thread pool: every thread does its part, waits without computing, and survives errors and forks.
#include "matgrad/thread_pool.h"

#include <chrono>
#include <ctime>
#include <numeric>
#include <thread>
#include <vector>

#include "testing.h"

#if !defined(_WIN32)
#include <sys/wait.h>
#include <unistd.h>
#endif

using namespace matgrad;
using namespace matgrad::testing;

namespace {

const std::vector<int> kSizes = {1, 2, 3, 40};

// Whether the threads of a pool, each of which writes an element per round, see what the others wrote before a barrier.
bool computes(ThreadPool& pool, int rounds = 20) {
    std::vector<int> previous(pool.size(), 1), next(pool.size());
    std::atomic<bool> is_right{true};
    pool.run([&](const Worker& worker) {
        std::vector<int>*from = &previous, *to = &next;
        for (int round = 1; round <= rounds; ++round) {
            const int sum = std::accumulate(from->begin(), from->end(), 0);
            if (sum != round * worker.count) is_right = false;
            (*to)[worker.index] = round + 1;
            worker.wait();
            std::swap(from, to);
        }
    });
    return is_right;
}

void test_jobs() {
    for (int size : kSizes) {
        ThreadPool pool(size);
        check(pool.size() == size, "size of a pool");
        for (int job = 0; job < 5; ++job) check(computes(pool), "a job on " + std::to_string(size) + " threads");
    }
}

void test_sizes() {
    for (int size : {0, -1, kMostThreads + 1, 60000})
        check_throws([&] { ThreadPool pool(size); }, "a pool of " + std::to_string(size) + " threads");
}

// Threads that wait a long time, at a barrier, for a job or for its end, use next to no time of a core.
void test_waiting() {
    const auto rest = [] { std::this_thread::sleep_for(std::chrono::milliseconds(300)); };
    ThreadPool pool(5);
    const std::clock_t start = std::clock();
    pool.run([&](const Worker& worker) {
        if (worker.index == 1) rest();
        worker.wait();
    });
    pool.run([&](const Worker& worker) {
        if (worker.index == 1) rest();
    });
    rest();
    check(computes(pool), "a job after a rest");
    [[maybe_unused]] const double seconds = double(std::clock() - start) / CLOCKS_PER_SEC;
#if !defined(_WIN32)  // where this is not the time of the cores
    check(seconds < 0.15, "waiting threads sleep: they computed for " + std::to_string(seconds) + " s");
#endif
}

// The first exception of a job ends it, on all threads and with no one left at a barrier, and the pool goes on.
void test_exceptions() {
    for (int size : kSizes) {
        ThreadPool pool(size);
        for (int failing = 0; failing <= size; failing += std::max(1, size / 3)) {  // all threads at the end
            std::string message;
            try {
                pool.run([&](const Worker& worker) {
                    worker.wait();
                    if (worker.index == failing || failing == size) throw std::runtime_error("thread " + std::to_string(failing));
                    for (int i = 0; i < 3; ++i) worker.wait();
                });
            } catch (const std::runtime_error& error) {
                message = error.what();
            }
            const std::string where = std::to_string(size) + " threads of which " + std::to_string(failing) + " throws";
            check(message == "thread " + std::to_string(failing), where);
            check(computes(pool), "a job after an exception: " + where);
        }
    }
}

void test_jobs_of_two_threads() {
    ThreadPool pool(3);
    bool is_right[2] = {true, true};
    const auto use = [&](int i) {
        for (int job = 0; job < 50; ++job) is_right[i] = computes(pool) && is_right[i];
    };
    std::thread other(use, 1);
    use(0);
    other.join();
    check(is_right[0] && is_right[1], "jobs of two threads, one at a time");
}

#if !defined(_WIN32) && !defined(__SANITIZE_THREAD__)
// Whether a child that does this exits with status 0; one that hangs is ended by an alarm.
template <class Function>
bool child_succeeds(Function&& function) {
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        _exit(function() ? 0 : 1);
    }
    int status = -1;
    return waitpid(child, &status, 0) == child && status == 0;
}

void test_forks() {
    auto pool = std::make_unique<ThreadPool>(3);
    check(computes(*pool), "a job before a fork");
    check(child_succeeds([&] { return computes(*pool); }), "a child computes");
    check(child_succeeds([&] { return child_succeeds([&] { return computes(*pool); }) && computes(*pool); }),
          "a grandchild computes");
    check(child_succeeds([&] { return pool.reset(), true; }), "a child ends the pool");
    check(child_succeeds([&] { return computes(*pool) && (pool.reset(), true); }), "a child computes and ends the pool");
    check(computes(*pool), "the parent computes after its children");

    std::atomic<bool> is_over{false};
    std::thread busy([&] {
        while (!is_over) computes(*pool);
    });
    for (int i = 0; i < 10; ++i)
        check(child_succeeds([&] { return computes(*pool) && (pool.reset(), true); }), "a child that was forked during a job");
    is_over = true;
    busy.join();
}
#endif

}  // namespace

// With any argument, without forks: for emulators that cannot start threads in a child.
int main([[maybe_unused]] int count, char**) {
    test_jobs();
    test_sizes();
    test_waiting();
    test_exceptions();
    test_jobs_of_two_threads();
#if !defined(_WIN32) && !defined(__SANITIZE_THREAD__)
    if (count == 1) test_forks();
#endif
    return finish("thread_pool");
}
