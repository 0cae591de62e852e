#include "matgrad/thread_pool.h"

#include <algorithm>
#include <climits>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "matgrad/cores.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if __has_include(<pthread.h>)
#include <pthread.h>
#endif
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace matgrad {

namespace {

// Where every thread has a core, the next one comes within microseconds, and sleeping takes longer than that: a long spin pays.
// Where there are fewer cores, or others use them, it fails, and takes time from the thread that it waits for.
constexpr int kLongSpin = 20000, kShortSpin = 1000, kCrowdedSpin = 40;  // pauses, of 2 to 50 ns
constexpr int kMostShort = 255;                                         // short spins between two long ones

inline void pause_briefly() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// The flags of the processor's floating-point unit, and those among them that flush subnormal numbers.
#if defined(__x86_64__)
constexpr std::uint64_t kFlush = 0x8040;
std::uint64_t flags() { return _mm_getcsr(); }
void set_flags(std::uint64_t flags) { _mm_setcsr(static_cast<unsigned>(flags)); }
#elif defined(__aarch64__)
constexpr std::uint64_t kFlush = 1ull << 24;
std::uint64_t flags() {
    std::uint64_t flags;
    asm volatile("mrs %0, fpcr" : "=r"(flags));
    return flags;
}
void set_flags(std::uint64_t flags) { asm volatile("msr fpcr, %0" : : "r"(flags)); }
#else
constexpr std::uint64_t kFlush = 0;
std::uint64_t flags() { return 0; }
void set_flags(std::uint64_t) {}
#endif

// Sleeps while the number is as it was seen, and wakes those who sleep for it. On Linux by a futex. Not by `wait` of std::atomic:
// it yields several times before it sleeps, where others use the core for milliseconds each, and does not wake up with MinGW.
#if defined(__linux__)
void sleep(std::atomic<unsigned>& number, unsigned seen) {
    static_assert(sizeof number == sizeof(unsigned));
    syscall(SYS_futex, &number, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}
void wake(std::atomic<unsigned>& number) { syscall(SYS_futex, &number, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0); }
#else
std::mutex sleeping;
std::condition_variable changed;
void sleep(std::atomic<unsigned>& number, unsigned seen) {
    std::unique_lock<std::mutex> lock(sleeping);
    changed.wait(lock, [&] { return number.load() != seen; });
}
void wake(std::atomic<unsigned>&) {
    {
        std::lock_guard<std::mutex> lock(sleeping);
    }  // whoever saw the old number sleeps by now
    changed.notify_all();
}
#endif

std::atomic<unsigned> fork_count{0};

}  // namespace

unsigned forks() {
#if __has_include(<pthread.h>) && !defined(_WIN32)
    [[maybe_unused]] static const int is_registered =
        pthread_atfork(nullptr, nullptr, [] { fork_count.fetch_add(1, std::memory_order_relaxed); });
#endif
    return fork_count.load(std::memory_order_relaxed);
}

Subnormals::Subnormals(Treatment treatment) : before_(flags()) {
    set_flags(treatment == flushed ? before_ | kFlush : before_ & ~kFlush);
}
Subnormals::~Subnormals() { set_flags(before_); }

Counter::Counter(int threads)
    : long_spin_(threads <= cores() ? kLongSpin : kCrowdedSpin), short_spin_(threads <= cores() ? kShortSpin : kCrowdedSpin) {}

bool Counter::spin(unsigned seen, int pauses) const {
    for (; pauses > 0 && value() == seen; --pauses) pause_briefly();
    return pauses > 0;
}

// Whether a spin saw the value change. Each long one that fails is followed by more short ones, each that succeeds by fewer.
bool Counter::spin(unsigned seen) {
    if (const int left = short_spins_left_.load(std::memory_order_relaxed)) {
        short_spins_left_.store(left - 1, std::memory_order_relaxed);
        return spin(seen, short_spin_);
    }
    const bool has_changed = spin(seen, long_spin_);
    const int before = short_spins_.load(std::memory_order_relaxed);
    const int now = has_changed ? before / 2 : std::min(4 * before + 3, kMostShort);
    if (now == before && now == 0) return has_changed;  // nothing to write to memory that all threads read
    short_spins_.store(now, std::memory_order_relaxed);
    short_spins_left_.store(now, std::memory_order_relaxed);
    return has_changed;
}

void Counter::wait(unsigned seen) {
    if (spin(seen)) return;
    sleepers_.fetch_add(1);
    while (value() == seen) sleep(value_, seen);
    sleepers_.fetch_sub(1);
}

// A thread that goes to sleep counts itself before it looks at the value, so it is seen here or sees the new value.
void Counter::advance() {
    value_.fetch_add(1);
    if (sleepers_.load() > 0) wake(value_);
}

void Barrier::wait() {
    const unsigned round = rounds_.value();
    if (is_broken_.load(std::memory_order_relaxed)) throw Broken{};
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
        arrived_.store(0, std::memory_order_relaxed);
        rounds_.advance();
    } else {
        rounds_.wait(round);
    }
    if (is_broken_.load(std::memory_order_relaxed)) throw Broken{};
}

void Barrier::break_up() {
    is_broken_.store(true, std::memory_order_relaxed);
    rounds_.advance();
}

void Barrier::mend() {
    arrived_.store(0, std::memory_order_relaxed);
    is_broken_.store(false, std::memory_order_relaxed);
}

class ThreadPool::Crew {
public:
    explicit Crew(int size) : size_(size), started_(size), finished_(size), barrier_(size, size) {
        try {
            threads_.reserve(size);
            for (int i = 1; i < size; ++i) threads_.emplace_back([this, i] { serve(i); });
        } catch (const std::exception& error) {
            const std::string started = std::to_string(threads_.size() + 1);
            close();
            throw std::invalid_argument("threads: only " + started + " of " + std::to_string(size) +
                                        " can be started: " + error.what());
        }
    }
    ~Crew() { close(); }

    void run(const std::function<void(const Worker&)>& job) {
        std::lock_guard<std::mutex> one_at_a_time(jobs_);
        job_ = &job;
        failure_ = nullptr;
        unfinished_.store(size_ - 1, std::memory_order_relaxed);
        const unsigned finished = finished_.value();
        if (size_ > 1) started_.advance();
        work(0);
        if (size_ > 1) finished_.wait(finished);
        if (!failure_) return;
        barrier_.mend();
        std::rethrow_exception(failure_);
    }

    const unsigned born = forks();  // the process that it belongs to

private:
    void work(int index) {
        const Subnormals subnormals(Subnormals::flushed);
        try {
            (*job_)(Worker{index, size_, &barrier_});
        } catch (const Barrier::Broken&) {
        } catch (...) {
            std::lock_guard<std::mutex> lock(failures_);
            if (!failure_) failure_ = std::current_exception();
            barrier_.break_up();
        }
    }

    void serve(int index) {
        for (unsigned seen = 0;; ++seen) {
            started_.wait(seen);
            if (is_closing_) return;
            work(index);
            if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) finished_.advance();
        }
    }

    void close() {
        is_closing_ = true;
        started_.advance();
        for (auto& thread : threads_) thread.join();
    }

    const int size_;
    const std::function<void(const Worker&)>* job_ = nullptr;
    bool is_closing_ = false;
    std::exception_ptr failure_;
    std::mutex jobs_, failures_;
    Counter started_, finished_;                          // jobs
    alignas(kCacheLine) std::atomic<int> unfinished_{0};  // threads, beside the caller's
    Barrier barrier_;
    std::vector<std::thread> threads_;
};

ThreadPool::ThreadPool(int threads) : size_(threads) {
    if (threads < 1 || threads > kMostThreads)
        throw std::invalid_argument("threads: expected 1 to " + std::to_string(kMostThreads) + ", found " +
                                    std::to_string(threads));
    crew_ = new Crew(threads);
}

// In a forked child, the crew of its parent is left alone: its threads cannot be joined, and its locks may be held by them.
ThreadPool::~ThreadPool() {
    if (Crew* crew = crew_.load(); crew->born == forks()) delete crew;
}

ThreadPool::Crew& ThreadPool::crew() {
    Crew* found = crew_.load(std::memory_order_acquire);
    if (found->born == forks()) return *found;
    auto own = std::make_unique<Crew>(size_);
    return crew_.compare_exchange_strong(found, own.get()) ? *own.release() : *found;
}

void ThreadPool::run(const std::function<void(const Worker&)>& job) { crew().run(job); }

}  // namespace matgrad
