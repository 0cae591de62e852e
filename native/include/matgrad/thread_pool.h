// Threads that run a job together and can wait for one another within it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace matgrad {

// A barrier for `size` threads. They spin, as the work between two barriers takes microseconds.
class Barrier {
public:
    explicit Barrier(int size) : size_(size) {}
    void wait();

private:
    const int size_;
    std::atomic<int> arrived_{0};
    std::atomic<unsigned> round_{0};
};

// A thread within a job: which of them it is, and how it waits for the others.
struct Worker {
    int index;
    int count;
    Barrier* barrier;

    void wait() const {
        if (count > 1) barrier->wait();
    }
    // The part [begin, end) of `items` that belongs to this thread.
    std::ptrdiff_t begin(std::ptrdiff_t items) const { return items * index / count; }
    std::ptrdiff_t end(std::ptrdiff_t items) const { return items * (index + 1) / count; }
};

// A fixed number of threads, including the caller's. Subnormal numbers are flushed to 0 within a job.
class ThreadPool {
public:
    explicit ThreadPool(int threads);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int size() const { return static_cast<int>(threads_.size()) + 1; }
    // Runs job(worker) on every thread and returns when all have finished; one job at a time.
    void run(const std::function<void(const Worker&)>& job);

private:
    void serve(int index);
    void work(int index);

    Barrier barrier_;
    const std::function<void(const Worker&)>* job_ = nullptr;
    std::atomic<unsigned> started_{0};  // the number of jobs so far
    std::atomic<int> unfinished_{0};
    std::atomic<bool> closing_{false};
    std::mutex jobs_, mutex_;
    std::condition_variable wake_;
    std::vector<std::thread> threads_;
};

}  // namespace matgrad
