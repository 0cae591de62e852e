// Threads that run a job together and can wait for one another within it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace matgrad {

constexpr std::size_t kCacheLine = 64;  // bytes; what several threads change has a line of its own
constexpr int kMostThreads = 1024;      // of a pool

// How often this process is a child: the number of forks between it and the process that loaded the library.
unsigned forks();

// A number that counts up. Threads wait for it to change: they spin, for long if that has paid lately, then sleep.
class alignas(kCacheLine) Counter {
public:
    explicit Counter(int threads);  // that run at the same time, if they have cores
    unsigned value() const { return value_.load(std::memory_order_acquire); }
    void wait(unsigned seen);  // until the value is another one
    void advance();

private:
    bool spin(unsigned seen);
    bool spin(unsigned seen, int pauses) const;

    const int long_spin_, short_spin_;  // pauses
    std::atomic<unsigned> value_{0};
    std::atomic<int> sleepers_{0};
    std::atomic<int> short_spins_{0}, short_spins_left_{0};  // before the next long one
};

// A barrier for `size` of the `all` threads that run at the same time.
class Barrier {
public:
    struct Broken {};  // what wait() throws where another thread will not come

    Barrier(int size, int all) : size_(size), rounds_(all) {}
    void wait();
    void break_up();  // ends the waiting of all threads, until the barrier is mended
    void mend();      // while nobody waits

private:
    const int size_;
    std::atomic<bool> is_broken_{false};
    alignas(kCacheLine) std::atomic<int> arrived_{0};
    Counter rounds_;
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
    std::ptrdiff_t part(std::ptrdiff_t items) const { return end(items) - begin(items); }  // its size
};

// Flushes subnormal numbers to 0 while it lives, since arithmetic with them is a hundred times slower, or keeps them, which is usual.
class Subnormals {
public:
    enum Treatment { flushed, kept };
    explicit Subnormals(Treatment treatment);
    ~Subnormals();
    Subnormals(const Subnormals&) = delete;
    Subnormals& operator=(const Subnormals&) = delete;

private:
    std::uint64_t before_;  // the processor's flags
};

// A fixed number of threads, including the caller's. Subnormal numbers are flushed to 0 within a job.
class ThreadPool {
public:
    // Throws std::invalid_argument for another number than 1 to kMostThreads or if they cannot be started.
    explicit ThreadPool(int threads);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int size() const { return size_; }
    // Runs job(worker) on every thread and returns when all have finished; one job at a time. Where a thread throws, the
    // others end at their next barrier, and the first exception is thrown again.
    void run(const std::function<void(const Worker&)>& job);

private:
    class Crew;  // the threads of one process: a forked child has none of its parent's
    Crew& crew();

    const int size_;
    std::atomic<Crew*> crew_;
};

}  // namespace matgrad
