// OpenSSL 1.0 kept its error queues in one hash table behind one process-wide lock. Asio clears the
// queue before and reads it after every operation of its TLS engine, and the library looks into it
// besides. With OpenSSL 1.0.2 itself, whose users bring the locks, they are counted here by their
// names; `--emulate fair-locks` hands them to whoever waits longest, as OS X did in 2015: Linux'
// own mutexes are not fair. OpenSSL has had thread-local queues since 1.1.0; `--emulate error-lock`
// makes each of Asio's two calls take one fair lock, and look its thread up in one table, as often
// as was counted of 1.0.2.
//
// Stands in front of asio.cc in one source.
#include <openssl/crypto.h>
#include <openssl/opensslv.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>

// Before 1.1.0 threads, versions, curves and names of suites were told in other ways.
#if OPENSSL_VERSION_NUMBER < 0x10100000L
#define OLD_OPENSSL
#define EVP_MD_CTX_new EVP_MD_CTX_create
#define EVP_MD_CTX_free EVP_MD_CTX_destroy
#define OpenSSL_version SSLeay_version
#define OpenSSL_version_num SSLeay
#define OPENSSL_VERSION SSLEAY_VERSION
#endif

class Fair {
 public:
  void lock() {
    std::unique_lock<std::mutex> guard(inner_);
    const std::uint64_t mine = next_++;
    turn_.wait(guard, [this, mine] { return serving_ == mine; });
  }
  void unlock() {
    {
      std::lock_guard<std::mutex> guard(inner_);
      ++serving_;
    }
    turn_.notify_all();
  }

 private:
  std::mutex inner_;
  std::condition_variable turn_;
  std::uint64_t next_ = 0, serving_ = 0;
};

// What was taken, by the lock's name.
using Taken = std::map<std::string, std::uint64_t>;

namespace error_lock {
// OpenSSL 1.0.2u takes 1,440 to 1,602 locks per MiB, nine of ten that of its error queues; Asio
// makes 377 to 384 of these calls.
constexpr int lookups = 4;

bool on = false;
Fair lock;
std::unordered_map<std::thread::id, std::uint64_t> table;

void take() {
  for (int i = 0; on && i < lookups; ++i) {
    std::lock_guard<Fair> guard(lock);
    ++table[std::this_thread::get_id()];
  }
}
}  // namespace error_lock

// The locks that OpenSSL 1.0 has its users bring.
namespace library_locks {
#ifdef OLD_OPENSSL
struct Lock {
  std::mutex system;
  Fair fair;
  std::atomic<std::uint64_t> taken{0};
};

bool are_fair = false;
Lock locks[CRYPTO_NUM_LOCKS];

void turn(int mode, int number, const char *, int) {
  Lock &lock = locks[number];
  if (!(mode & CRYPTO_LOCK)) {
    if (are_fair) return lock.fair.unlock();
    return lock.system.unlock();
  }
  if (are_fair)
    lock.fair.lock();
  else
    lock.system.lock();
  lock.taken.fetch_add(1, std::memory_order_relaxed);
}

// In place of Asio's own, which are in place since the first context.
void bring(bool fair) {
  are_fair = fair;
  CRYPTO_set_locking_callback(turn);
}

Taken taken() {
  Taken all;
  for (int number = 0; number < CRYPTO_NUM_LOCKS; ++number)
    if (std::uint64_t count = locks[number].taken.load()) all[CRYPTO_get_lock_name(number)] = count;
  return all;
}
#else
Taken taken() { return {}; }
#endif
}  // namespace library_locks

