/* Locks in a loop of standalone Asio, with no thread: a descriptor and a timer. A call takes a function,
   which gets the lease. usage: asio ADDRESS.. */
#include <asio.hpp>
#include <functional>
#include <iostream>
#include <redbolt.hpp>

using namespace std::chrono_literals;

/* A driver in a loop. It must outlive the calls that it has under way. */
class locks {
 public:
  using handler = std::function<void(const redbolt_completion &, const redbolt::error &)>;

  locks(asio::io_context &context, redbolt::driver driver)
      : driver_(std::move(driver)), timer_(context), descriptor_(context, driver_.fd()) {
    serve();
  }
  /* The driver owns the descriptor, and closes it. */
  ~locks() { descriptor_.release(); }

  void lock(std::string_view key, const redbolt::options &options, handler then) {
    submit(std::move(then), [&](void *user) { return driver_.lock(key, options, user); });
  }
  void unlock(redbolt_lease lease, handler then) {
    submit(std::move(then), [&](void *user) { return driver_.unlock(lease, user); });
  }
  std::chrono::nanoseconds remaining(redbolt_lease lease) const { return driver_.remaining(lease); }
  /* Ends the loop's interest in the driver. */
  void stop() {
    is_stopped_ = true;
    timer_.cancel();
    descriptor_.cancel();
  }

 private:
  template <class Call>
  void submit(handler then, Call call) {
    auto kept = std::make_unique<handler>(std::move(then));
    call(kept.get()).value();
    kept.release(); /* until its completion */
    watch();
  }

  void serve() {
    driver_.drive().value();
    driver_.completions([](const redbolt_completion &done, const redbolt::error &why) {
      /* A lost lease names the function of its lock call, which has run and is gone. Ask remaining(). */
      if (done.event == REDBOLT_LEASE_LOST) return;
      std::unique_ptr<handler> then(static_cast<handler *>(done.user));
      (*then)(done, why);
    });
    watch();
  }

  void watch() {
    if (is_stopped_) return;
    /* A new end of the timer cancels the wait before it. */
    timer_.expires_after(driver_.timeout().value_or(1h));
    timer_.async_wait([this](asio::error_code error) {
      if (!error && !is_stopped_) serve();
    });
    if (std::exchange(is_watched_, true)) return;
    descriptor_.async_wait(asio::posix::stream_descriptor::wait_read, [this](asio::error_code error) {
      is_watched_ = false;
      if (!error && !is_stopped_) serve();
    });
  }

  redbolt::driver driver_;
  asio::steady_timer timer_;
  asio::posix::stream_descriptor descriptor_;
  bool is_watched_ = false, is_stopped_ = false;
};

int main(int argc, char **argv) try {
  auto config = redbolt::config::of({argv + 1, argv + argc}).value();
  /* For a test alone, where nodes have just started and a busy machine may be slow. */
  config.set(REDBOLT_RESTART_GUARD, 0).value();
  config.set(REDBOLT_NODE_TIMEOUT_NS, 2s).value();
  asio::io_context context;
  locks locks(context, redbolt::driver::standalone(config).value());

  constexpr int orders = 8;
  int shipped = 0;
  for (int i = 0; i < orders; i++) {
    locks.lock("order:" + std::to_string(i), 10s, [&](const redbolt_completion &won, const redbolt::error &why) {
      if (won.code != REDBOLT_OK) throw redbolt::failure(why);
      if (locks.remaining(won.lease) < 1s) throw std::runtime_error("too little is left of the lease");
      locks.unlock(won.lease, [&](const redbolt_completion &ended, const redbolt::error &why_not) {
        if (ended.code != REDBOLT_OK) throw redbolt::failure(why_not);
        if (++shipped == orders) locks.stop();
      });
    });
  }
  context.run();
  std::cout << "shipped " << shipped << " orders\n";
} catch (const std::exception &exception) {
  std::cerr << exception.what() << '\n';
  return 1;
}
