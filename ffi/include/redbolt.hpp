/* Redbolt for C++17: owners, guards and results over redbolt.h, and nothing else. A call reports its
   failure in a result, and throws only if memory runs out. Ask a result whether it has a value before
   you use *, -> or error(); value() throws if there is none. The rules for threads and forks are those
   of the C types. */
#ifndef REDBOLT_HPP
#define REDBOLT_HPP

#include <redbolt.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace redbolt {

using nanoseconds = std::chrono::nanoseconds;

/* Why a call failed. */
class error {
 public:
  /* For a call to write into. */
  redbolt_error *get() noexcept { return &raw_; }
  redbolt_code code() const noexcept { return static_cast<redbolt_code>(raw_.code); }
  /* One line for a person; it never has a token or a password. */
  std::string_view message() const noexcept { return reinterpret_cast<const char *>(raw_.message); }
  bool is_taken() const noexcept { return raw_.code == REDBOLT_TAKEN; }
  const redbolt_error &raw() const noexcept { return raw_; }

 private:
  redbolt_error raw_{};
};

/* What result::value() throws. */
class failure : public std::runtime_error {
 public:
  explicit failure(const error &why) : std::runtime_error(std::string(why.message())), why_(why) {}
  const error &why() const noexcept { return why_; }

 private:
  error why_;
};

/* A value, or why there is none; as std::expected of C++23. */
template <class T>
class [[nodiscard]] result {
 public:
  result(T value) : held_(std::in_place_index<0>, std::move(value)) {}
  result(const redbolt::error &why) : held_(std::in_place_index<1>, why) {}
  bool has_value() const noexcept { return held_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }
  /* Only if there is a value. */
  T &operator*() & { return std::get<0>(held_); }
  const T &operator*() const & { return std::get<0>(held_); }
  T &&operator*() && { return std::get<0>(std::move(held_)); }
  T *operator->() { return &std::get<0>(held_); }
  const T *operator->() const { return &std::get<0>(held_); }
  /* Only if there is none. */
  const redbolt::error &error() const { return std::get<1>(held_); }
  /* Throws `failure` if there is none. */
  T &value() & {
    checked();
    return **this;
  }
  const T &value() const & {
    checked();
    return **this;
  }
  T value() && {
    checked();
    return *std::move(*this);
  }

 private:
  void checked() const {
    if (!has_value()) throw failure(error());
  }
  std::variant<T, redbolt::error> held_;
};

template <>
class [[nodiscard]] result<void> {
 public:
  result() = default;
  result(const redbolt::error &why) : why_(why) {}
  bool has_value() const noexcept { return !why_; }
  explicit operator bool() const noexcept { return has_value(); }
  const redbolt::error &error() const { return *why_; }
  void value() const {
    if (why_) throw failure(*why_);
  }

 private:
  std::optional<redbolt::error> why_;
};

namespace detail {
template <class Call>
result<void> ended(Call call) {
  error why;
  if (call(why.get()) == REDBOLT_OK) return {};
  return why;
}
inline uint64_t count(nanoseconds time) noexcept {
  return time.count() < 0 ? 0 : static_cast<uint64_t>(time.count());
}
/* Caps a duration at the longest that nanoseconds can count, about 292 years. */
inline nanoseconds duration(uint64_t ns) noexcept {
  return nanoseconds(ns > INT64_MAX ? INT64_MAX : static_cast<int64_t>(ns));
}
/* C takes no null pointer, and a view of nothing has one. */
inline redbolt_key named(std::string_view key) noexcept {
  return {key.data() == nullptr ? "" : key.data(), key.size()};
}
inline std::vector<redbolt_key> listed(const std::vector<std::string_view> &keys) {
  std::vector<redbolt_key> list;
  for (auto key : keys) list.push_back(named(key));
  return list;
}
}  // namespace detail

/* What one call for a lock asks for; see redbolt_options. */
struct options {
  nanoseconds ttl;
  /* Zero: the default of the client. A negative timeout (no budget left) ends the call at once. */
  nanoseconds timeout{};
  nanoseconds min_validity{};
  nanoseconds linger{};
  uint32_t slots = 0;
  uint32_t readers = 0;
  uint32_t flags = 0;

  template <class Rep, class Period>
  options(std::chrono::duration<Rep, Period> lives, uint32_t bits = 0)
      : ttl(std::chrono::duration_cast<nanoseconds>(lives)), flags(bits) {}
  redbolt_options raw() const noexcept {
    auto ends = timeout < nanoseconds::zero() ? 1 : detail::count(timeout);
    return {detail::count(ttl), ends, detail::count(min_validity),
            detail::count(linger), slots, readers, flags};
  }
};

/* The nodes and the settings. Move-only. */
class config {
 public:
  static result<config> of(const std::vector<std::string> &nodes) {
    std::vector<const char *> texts;
    for (const auto &node : nodes) texts.push_back(node.c_str());
    redbolt_config *made;
    auto ended = detail::ended([&](redbolt_error *why) {
      /* An empty list has no first entry; the library says that it is empty. */
      const char *none = "";
      return redbolt_config_new(texts.empty() ? &none : texts.data(), texts.size(), &made, why);
    });
    if (!ended) return ended.error();
    return config(made);
  }
  result<void> set(redbolt_setting setting, uint64_t value) {
    return detail::ended(
        [&](redbolt_error *why) { return redbolt_config_set(raw_.get(), setting, value, why); });
  }
  template <class Rep, class Period>
  result<void> set(redbolt_setting setting, std::chrono::duration<Rep, Period> value) {
    return set(setting, detail::count(std::chrono::duration_cast<nanoseconds>(value)));
  }
  result<void> set(redbolt_text_setting setting, std::string_view text) {
    return detail::ended([&](redbolt_error *why) {
      const char *data = text.data() == nullptr ? "" : text.data();
      return redbolt_config_set_text(raw_.get(), setting, data, text.size(), why);
    });
  }
  redbolt_config *get() const noexcept { return raw_.get(); }

 private:
  struct freed {
    void operator()(redbolt_config *raw) const noexcept { redbolt_config_free(raw); }
  };
  explicit config(redbolt_config *raw) noexcept : raw_(raw) {}
  std::unique_ptr<redbolt_config, freed> raw_;
};

/* A lock of a client. Its end releases the lock without waiting. Move-only; it must not outlive its
   client. */
class [[nodiscard]] guard {
 public:
  guard(redbolt_client *client, redbolt_lease lease) noexcept : client_(client), lease_(lease) {}
  guard(guard &&other) noexcept
      : client_(std::exchange(other.client_, nullptr)), lease_(std::exchange(other.lease_, {})) {}
  guard &operator=(guard &&other) noexcept {
    if (this != &other) {
      release();
      client_ = std::exchange(other.client_, nullptr);
      lease_ = std::exchange(other.lease_, {});
    }
    return *this;
  }
  ~guard() { release(); }
  /* How long the lock is still certainly held. Ask right before each effect that needs the lock. */
  nanoseconds remaining() const noexcept {
    return detail::duration(redbolt_remaining_ns(client_, lease_));
  }
  bool is_valid() const noexcept { return remaining() > nanoseconds::zero(); }
  result<redbolt_lease_info> state() const {
    redbolt_lease_info info;
    auto ended = detail::ended([&](redbolt_error *why) {
      return redbolt_lease_state(client_, lease_, &info, why);
    });
    if (!ended) return ended.error();
    return info;
  }
  result<void> extend(nanoseconds ttl) {
    return detail::ended([&](redbolt_error *why) {
      return redbolt_extend(client_, lease_, detail::count(ttl), why);
    });
  }
  /* The lock is over afterwards, whatever the result is. */
  result<void> unlock() {
    auto client = std::exchange(client_, nullptr);
    auto lease = std::exchange(lease_, {});
    return detail::ended([&](redbolt_error *why) { return redbolt_unlock(client, lease, why); });
  }
  /* Whether the lock was lost; false after `limit`. An error if it was unlocked. */
  result<bool> wait_lost(nanoseconds limit) const {
    error why;
    auto code = redbolt_wait_lost(client_, lease_, detail::count(limit), why.get());
    if (code == REDBOLT_LOST || code == REDBOLT_TIMED_OUT) return code == REDBOLT_LOST;
    return why;
  }
  redbolt_lease lease() const noexcept { return lease_; }

 private:
  void release() noexcept {
    if (client_ != nullptr) redbolt_release(client_, lease_, nullptr);
  }
  redbolt_client *client_;
  redbolt_lease lease_;
};

/* Locks for threads: any number of them at the same time. Move-only. */
class client {
 public:
  static result<client> connect(const config &config) {
    redbolt_client *made;
    auto ended = detail::ended([&](redbolt_error *why) {
      return redbolt_client_new(config.get(), &made, why);
    });
    if (!ended) return ended.error();
    return client(made);
  }
  result<guard> lock(std::string_view key, const options &options) {
    auto name = detail::named(key);
    return take(redbolt_lock, name.data, name.len, options);
  }
  result<guard> try_lock(std::string_view key, const options &options) {
    auto name = detail::named(key);
    return take(redbolt_try_lock, name.data, name.len, options);
  }
  result<guard> lock_all(const std::vector<std::string_view> &keys, const options &options) {
    auto list = detail::listed(keys);
    return take(redbolt_lock_all, list.data(), list.size(), options);
  }
  result<guard> try_lock_all(const std::vector<std::string_view> &keys, const options &options) {
    auto list = detail::listed(keys);
    return take(redbolt_try_lock_all, list.data(), list.size(), options);
  }
  /* How many releases the nodes have not confirmed; those locks end with their TTL. */
  result<uint64_t> shutdown(nanoseconds limit) {
    uint64_t owed = 0;
    auto ended = detail::ended([&](redbolt_error *why) {
      return redbolt_client_shutdown(raw_.get(), detail::count(limit), &owed, why);
    });
    if (!ended) return ended.error();
    return owed;
  }
  redbolt_client *get() const noexcept { return raw_.get(); }

 private:
  struct freed {
    void operator()(redbolt_client *raw) const noexcept { redbolt_client_free(raw); }
  };
  explicit client(redbolt_client *raw) noexcept : raw_(raw) {}
  template <class Call, class First>
  result<guard> take(Call call, First first, size_t count, const options &options) {
    auto raw = options.raw();
    redbolt_lease lease;
    auto ended = detail::ended([&](redbolt_error *why) {
      return call(raw_.get(), first, count, &raw, &lease, why);
    });
    if (!ended) return ended.error();
    return guard(raw_.get(), lease);
  }
  std::unique_ptr<redbolt_client, freed> raw_;
};

/* Locks for a loop of the caller's, one thread at a time. Move-only. */
class driver {
 public:
  static result<driver> standalone(const config &config) {
    redbolt_driver *made;
    auto ended = detail::ended([&](redbolt_error *why) {
      return redbolt_driver_new(config.get(), &made, why);
    });
    if (!ended) return ended.error();
    return driver(made);
  }
  /* The one descriptor to watch for reading; do not read from it or close it. */
  int fd() const noexcept { return redbolt_driver_fd(raw_.get()); }
  /* After how long to drive even if the descriptor is silent; std::nullopt: never. */
  std::optional<nanoseconds> timeout() const noexcept {
    auto ns = redbolt_driver_timeout_ns(raw_.get());
    return ns < 0 ? std::nullopt : std::optional<nanoseconds>(nanoseconds(ns));
  }
  bool is_ready() const noexcept { return redbolt_driver_is_ready(raw_.get()); }
  result<void> drive() {
    return detail::ended([&](redbolt_error *why) { return redbolt_driver_drive(raw_.get(), why); });
  }
  result<void> flush() {
    return detail::ended([&](redbolt_error *why) { return redbolt_driver_flush(raw_.get(), why); });
  }
  result<redbolt_op> lock(std::string_view key, const options &options, void *user) {
    auto name = detail::named(key);
    return submit(redbolt_driver_lock, name.data, name.len, options, user);
  }
  result<redbolt_op> try_lock(std::string_view key, const options &options, void *user) {
    auto name = detail::named(key);
    return submit(redbolt_driver_try_lock, name.data, name.len, options, user);
  }
  result<redbolt_op> lock_all(const std::vector<std::string_view> &keys, const options &options, void *user) {
    auto list = detail::listed(keys);
    return submit(redbolt_driver_lock_all, list.data(), list.size(), options, user);
  }
  result<redbolt_op> try_lock_all(const std::vector<std::string_view> &keys, const options &options,
                                  void *user) {
    auto list = detail::listed(keys);
    return submit(redbolt_driver_try_lock_all, list.data(), list.size(), options, user);
  }
  result<redbolt_op> extend(redbolt_lease lease, nanoseconds ttl, void *user) {
    redbolt_op op;
    auto ended = detail::ended([&](redbolt_error *why) {
      return redbolt_driver_extend(raw_.get(), lease, detail::count(ttl), user, &op, why);
    });
    if (!ended) return ended.error();
    return op;
  }
  result<redbolt_op> unlock(redbolt_lease lease, void *user) {
    redbolt_op op;
    auto ended = detail::ended([&](redbolt_error *why) {
      return redbolt_driver_unlock(raw_.get(), lease, user, &op, why);
    });
    if (!ended) return ended.error();
    return op;
  }
  result<void> release(redbolt_lease lease) {
    return detail::ended([&](redbolt_error *why) { return redbolt_driver_release(raw_.get(), lease, why); });
  }
  result<void> cancel(redbolt_op op) {
    return detail::ended([&](redbolt_error *why) { return redbolt_driver_cancel(raw_.get(), op, why); });
  }
  nanoseconds remaining(redbolt_lease lease) const noexcept {
    return detail::duration(redbolt_driver_remaining_ns(raw_.get(), lease));
  }
  result<redbolt_lease_info> state(redbolt_lease lease) const {
    redbolt_lease_info info;
    auto ended = detail::ended([&](redbolt_error *why) {
      return redbolt_driver_lease_state(raw_.get(), lease, &info, why);
    });
    if (!ended) return ended.error();
    return info;
  }
  /* Calls `each(completion, error)` for all that has ended. */
  template <class Each>
  void completions(Each each) {
    redbolt_completion done;
    error why;
    while (redbolt_driver_completions(raw_.get(), &done, why.get(), 1) == 1) each(done, why);
  }
  redbolt_driver *get() const noexcept { return raw_.get(); }

 private:
  struct freed {
    void operator()(redbolt_driver *raw) const noexcept { redbolt_driver_free(raw); }
  };
  explicit driver(redbolt_driver *raw) noexcept : raw_(raw) {}
  template <class Call, class First>
  result<redbolt_op> submit(Call call, First first, size_t count, const options &options, void *user) {
    auto raw = options.raw();
    redbolt_op op;
    auto ended = detail::ended([&](redbolt_error *why) {
      return call(raw_.get(), first, count, &raw, user, &op, why);
    });
    if (!ended) return ended.error();
    return op;
  }
  std::unique_ptr<redbolt_driver, freed> raw_;
};

}  // namespace redbolt
#endif
