/* Locks for threads in C++17: a guard releases its lock at the end of its scope. usage: guard ADDRESS.. */
#include <iostream>
#include <redbolt.hpp>
#include <thread>

using namespace std::chrono_literals;

int main(int argc, char **argv) try {
  auto config = redbolt::config::of({argv + 1, argv + argc}).value();
  /* For a test alone, where nodes have just started and a busy machine may be slow. */
  config.set(REDBOLT_RESTART_GUARD, 0).value();
  config.set(REDBOLT_NODE_TIMEOUT_NS, 2s).value();
  auto client = redbolt::client::connect(config).value();

  int written = 0;
  auto write = [&] {
    auto guard = client.lock("invoice:7", 10s);
    if (!guard) {
      std::cerr << guard.error().message() << '\n';
      std::exit(2);
    }
    if (guard->remaining() > 100ms) written++; /* the effect that needs the lock */
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; i++) threads.emplace_back(write);
  for (auto &thread : threads) thread.join();
  std::cout << written << " threads wrote, one after the other\n";

  auto both = client.lock_all({"account:7", "account:9"}, 10s).value();
  auto other = client.try_lock("account:9", 10s);
  if (other || !other.error().is_taken()) return 3;
  auto brief = client.lock("brief", 2s).value();
  redbolt::options late{10s};
  late.timeout = -1s; /* the caller's own deadline is over */
  if (client.lock("brief", late)) return 11;
  auto moved = std::move(both);
  if (both.is_valid() || !moved.is_valid()) return 4;
  moved.extend(20s).value();
  const auto state = moved.state();
  if (!state || state->is_lost || (*state).remaining_ns == 0 || state.value().slot != -1) return 9;
  auto spare = client.try_lock("spare", 10s);
  if (!spare.value().is_valid()) return 10;
  moved.unlock().value();
  if (moved.unlock()) return 5; /* an unlock of nothing is an error */
  if (client.try_lock("", 10s).error().code() != REDBOLT_INVALID_ARGUMENT) return 6;
  if (redbolt::config::of({}).error().code() != REDBOLT_INVALID_CONFIG) return 7;
  try {
    auto none = client.try_lock("invoice:7", 0s).value();
    return 8;
  } catch (const redbolt::failure &failure) {
    std::cout << failure.what() << '\n';
  }
} catch (const redbolt::failure &failure) {
  std::cerr << failure.what() << '\n';
  return 1;
}
