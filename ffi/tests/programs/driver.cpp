/* What a driver of C++ does with several keys. usage: driver ADDRESS.. */
#include <iostream>
#include <redbolt.hpp>

using namespace std::chrono_literals;

int main(int argc, char **argv) try {
  auto config = redbolt::config::of({argv + 1, argv + argc}).value();
  config.set(REDBOLT_RESTART_GUARD, 0).value();
  config.set(REDBOLT_NODE_TIMEOUT_NS, 2s).value();
  auto driver = redbolt::driver::standalone(config).value();
  auto end = redbolt_now_ns() + 20 * REDBOLT_S;
  auto next = [&](redbolt_event event) {
    std::optional<redbolt_completion> found;
    while (!found) {
      if (redbolt_now_ns() > end) throw std::runtime_error("no completion");
      driver.drive().value();
      driver.completions([&](const redbolt_completion &done, const redbolt::error &) {
        if (done.event == event) found = done;
      });
    }
    return *found;
  };

  driver.lock_all({"account:9", "account:7"}, 10s, nullptr).value();
  driver.flush().value();
  auto both = next(REDBOLT_LOCKED);
  if (both.code != REDBOLT_OK || driver.remaining(both.lease) < 5s) return 2;
  driver.try_lock_all({"account:7", "other"}, 10s, nullptr).value();
  if (next(REDBOLT_LOCKED).code != REDBOLT_TAKEN) return 3;
  if (driver.lock_all({"k", "k"}, 10s, nullptr)) return 4; /* a key appears twice */
  auto given_up = driver.lock("account:9", 10s, nullptr).value();
  driver.cancel(given_up).value();
  if (next(REDBOLT_LOCKED).code != REDBOLT_CANCELLED) return 5;
  driver.release(both.lease).value();
  if (driver.release(both.lease)) return 6; /* a release of nothing is an error */
  driver.lock_all({"account:7", "other"}, 10s, nullptr).value();
  if (next(REDBOLT_LOCKED).code != REDBOLT_OK) return 7;
  std::cout << "locked both\n";
} catch (const std::exception &failure) {
  std::cerr << failure.what() << '\n';
  return 1;
}
