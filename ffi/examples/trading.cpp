/* A trading loop that spins, with a fence at its gateway: an order of a holder that was paused beyond its
   lease is refused there. usage: trading ADDRESS.. */
#include <iostream>
#include <redbolt.hpp>

using namespace std::chrono_literals;

/* The resource: it keeps the highest fence that it has seen, and refuses a lower one. */
class gateway {
 public:
  bool place(uint64_t fence) {
    if (fence < highest_) return false;
    highest_ = fence;
    return true;
  }

 private:
  uint64_t highest_ = 0;
};

int main(int argc, char **argv) try {
  auto config = redbolt::config::of({argv + 1, argv + argc}).value();
  /* Fences need the restart guard: nodes vote once they are older than the longest TTL. Here it is
     short, for servers that a test has just started. */
  config.set(REDBOLT_MAX_TTL_NS, 4s).value();
  for (auto timeout : {REDBOLT_NODE_TIMEOUT_NS, REDBOLT_CONNECT_TIMEOUT_NS, REDBOLT_MAX_CLOCK_SKEW_NS})
    config.set(timeout, 500ms).value();
  auto driver = redbolt::driver::standalone(config).value();
  auto end = redbolt_now_ns() + 20 * REDBOLT_S;
  while (!driver.is_ready()) {
    if (redbolt_now_ns() > end) return 2;
    driver.drive().value();
  }

  gateway gateway;
  redbolt::options fenced(4s, REDBOLT_FENCED);
  fenced.min_validity = 1s;
  constexpr int orders = 50;
  int placed = 0;
  uint64_t first = 0;
  bool is_busy = false;
  while (placed < orders) {
    /* The market is looked at here. */
    if (!is_busy) {
      driver.lock("account:7", fenced, &is_busy).value();
      driver.flush().value();
      is_busy = true;
    }
    driver.drive().value();
    driver.completions([&](const redbolt_completion &done, const redbolt::error &why) {
      if (done.code != REDBOLT_OK) throw redbolt::failure(why);
      if (done.event != REDBOLT_LOCKED) return;
      auto fence = driver.state(done.lease).value().fence;
      if (first == 0) first = fence;
      if (driver.remaining(done.lease) > 100ms && gateway.place(fence)) placed++;
      driver.release(done.lease).value();
      is_busy = false;
    });
  }
  std::cout << "placed " << placed << " orders\n";
  if (gateway.place(first)) return 3;
  std::cout << "the gateway refused the order of an earlier holder\n";
} catch (const redbolt::failure &failure) {
  std::cerr << failure.what() << '\n';
  return 1;
}
