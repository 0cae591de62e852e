#include "matgrad/thread_pool.h"

#include <stdexcept>
#include <string>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace matgrad {

namespace {

constexpr int kSpins = 20000;  // some tens of microseconds, after which a thread yields

inline void pause_briefly() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Waits until the condition holds, first by spinning, then by yielding to other processes.
template <class Condition>
void spin_until(Condition&& holds) {
    for (int spins = 0; !holds(); ++spins) {
        if (spins < kSpins)
            pause_briefly();
        else
            std::this_thread::yield();
    }
}

// Flushes subnormal numbers to 0 while it lives: arithmetic with them is a hundred times slower.
class FlushSubnormals {
public:
#if defined(__x86_64__)
    FlushSubnormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }
    ~FlushSubnormals() { _mm_setcsr(before_); }

private:
    unsigned before_;
#elif defined(__aarch64__)
    FlushSubnormals() {
        asm volatile("mrs %0, fpcr" : "=r"(before_));
        asm volatile("msr fpcr, %0" : : "r"(before_ | (1ull << 24)));
    }
    ~FlushSubnormals() { asm volatile("msr fpcr, %0" : : "r"(before_)); }

private:
    unsigned long long before_;
#endif
};

}  // namespace

void Barrier::wait() {
    const unsigned round = round_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
        arrived_.store(0, std::memory_order_relaxed);
        round_.store(round + 1, std::memory_order_release);
    } else {
        spin_until([&] { return round_.load(std::memory_order_acquire) != round; });
    }
}

ThreadPool::ThreadPool(int threads) : barrier_(threads) {
    if (threads < 1) throw std::invalid_argument("threads: expected 1 or more, found " + std::to_string(threads));
    for (int i = 1; i < threads; ++i) threads_.emplace_back([this, i] { serve(i); });
}

ThreadPool::~ThreadPool() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        closing_ = true;
    }
    wake_.notify_all();
    for (auto& thread : threads_) thread.join();
}

void ThreadPool::run(const std::function<void(const Worker&)>& job) {
    std::lock_guard<std::mutex> one_at_a_time(jobs_);
    job_ = &job;
    unfinished_.store(static_cast<int>(threads_.size()), std::memory_order_relaxed);
    {
        std::lock_guard<std::mutex> lock(mutex_);
        started_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    work(0);
    spin_until([&] { return unfinished_.load(std::memory_order_acquire) == 0; });
}

void ThreadPool::work(int index) {
    FlushSubnormals flush;
    (*job_)(Worker{index, size(), &barrier_});
}

void ThreadPool::serve(int index) {
    for (unsigned seen = 0;; ++seen) {
        for (int spins = 0; spins < kSpins && started_.load(std::memory_order_acquire) == seen; ++spins) pause_briefly();
        if (started_.load(std::memory_order_acquire) == seen) {
            std::unique_lock<std::mutex> lock(mutex_);
            wake_.wait(lock, [&] { return closing_ || started_.load(std::memory_order_acquire) != seen; });
            if (started_.load(std::memory_order_acquire) == seen) return;
        }
        work(index);
        unfinished_.fetch_sub(1, std::memory_order_release);
    }
}

}  // namespace matgrad
