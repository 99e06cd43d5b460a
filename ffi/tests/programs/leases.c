/* What leases do: several keys, slots, fences, loss, threads, a fork. usage: leases ADDRESS..
   It prints "delete KEY", and then expects somebody to delete that key on the nodes. */
#include "../../examples/check.h"
#include <poll.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPECT(condition)                                              \
  do {                                                                 \
    if (!(condition)) {                                                \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                         \
    }                                                                  \
  } while (0)

static redbolt_client *client;
static redbolt_error error;

static redbolt_lease lock(const char *key, redbolt_options options) {
  redbolt_lease lease;
  must(redbolt_lock(client, key, strlen(key), &options, &lease, &error), &error, key);
  return lease;
}

static redbolt_lease_info state(redbolt_lease lease) {
  redbolt_lease_info info;
  must(redbolt_lease_state(client, lease, &info, &error), &error, "redbolt_lease_state");
  return info;
}

static void unlock(redbolt_lease lease) {
  must(redbolt_unlock(client, lease, &error), &error, "redbolt_unlock");
}

static void several_keys(void) {
  redbolt_options options = {.ttl_ns = 10 * REDBOLT_S};
  redbolt_key keys[] = {{"account:9", 9}, {"account\0007", 9}};
  redbolt_lease both, one;
  must(redbolt_lock_all(client, keys, 2, &options, &both, &error), &error, "redbolt_lock_all");
  EXPECT(redbolt_try_lock(client, "account:9", 9, &options, &one, &error) == REDBOLT_TAKEN);
  int denied = 0; /* a call ends before the last node has answered */
  for (uint32_t i = 0; i < error.nodes; i++) denied += error.votes[i] == REDBOLT_VOTE_DENIED;
  EXPECT(error.nodes == 3 && error.quorum == 2 && denied >= 2);
  EXPECT(redbolt_try_lock_all(client, keys, 2, &options, &one, &error) == REDBOLT_TAKEN);
  EXPECT(one.serial == 0 && redbolt_remaining_ns(client, one) == 0);
  unlock(both);
  must(redbolt_try_lock_all(client, keys, 2, &options, &both, &error), &error, "try_lock_all");
  unlock(both);
}

static void slots(void) {
  redbolt_options options = {.ttl_ns = 10 * REDBOLT_S, .slots = 2};
  redbolt_lease first = lock("licence", options), second = lock("licence", options), third;
  EXPECT(state(first).slot + state(second).slot == 1);
  EXPECT(redbolt_try_lock(client, "licence", 7, &options, &third, NULL) == REDBOLT_TAKEN);
  unlock(first);
  unlock(second);
  redbolt_options read = {.ttl_ns = 10 * REDBOLT_S, .readers = 4}, write = read;
  write.flags = REDBOLT_WRITE;
  redbolt_lease reads = lock("prices", read);
  EXPECT(state(lock("prices", read)).slot >= 0);
  EXPECT(redbolt_try_lock(client, "prices", 6, &write, &third, NULL) == REDBOLT_TAKEN);
  unlock(reads);
}

/* Fences need the restart guard, which servers that have just started pass once they are older than the
   longest TTL. */
static void fences(redbolt_config *config) {
  redbolt_client *of_others = client;
  must(redbolt_config_set(config, REDBOLT_RESTART_GUARD, 1, &error), &error, "guard");
  must(redbolt_config_set(config, REDBOLT_MAX_TTL_NS, 4 * REDBOLT_S, &error), &error, "longest TTL");
  uint64_t timeout = 500 * REDBOLT_MS;
  must(redbolt_config_set(config, REDBOLT_MAX_CLOCK_SKEW_NS, timeout, &error), &error, "skew");
  must(redbolt_config_set(config, REDBOLT_NODE_TIMEOUT_NS, timeout, &error), &error, "timeout");
  must(redbolt_config_set(config, REDBOLT_CONNECT_TIMEOUT_NS, timeout, &error), &error, "timeout");
  redbolt_code code;
  for (uint64_t end = redbolt_now_ns() + 15 * REDBOLT_S;;) {
    code = redbolt_client_new(config, &client, &error);
    if (code != REDBOLT_NO_QUORUM || redbolt_now_ns() > end) break;
  }
  must(code, &error, "redbolt_client_new");
  redbolt_options options = {.ttl_ns = REDBOLT_S, .flags = REDBOLT_FENCED};
  redbolt_lease lease = lock("fenced", options);
  uint64_t first = state(lease).fence;
  unlock(lease);
  lease = lock("fenced", options);
  EXPECT(first > 0 && state(lease).fence > first);
  unlock(lease);
  EXPECT(state(lock("plain", (redbolt_options){.ttl_ns = REDBOLT_S})).fence == 0);
  redbolt_client_free(client);
  client = of_others;
}

static void *extend_and_unlock(void *held) {
  redbolt_lease lease = *(redbolt_lease *)held;
  redbolt_error own;
  must(redbolt_extend(client, lease, 20 * REDBOLT_S, &own), &own, "an extension beside a wait");
  must(redbolt_unlock(client, lease, &own), &own, "an unlock beside a wait");
  return NULL;
}

/* A thread that waits for the loss keeps no other from the lease, and hears of its end. */
static void loss_beside_threads(void) {
  redbolt_lease lease = lock("watched", (redbolt_options){.ttl_ns = 20 * REDBOLT_S});
  EXPECT(redbolt_wait_lost(client, lease, REDBOLT_MS, NULL) == REDBOLT_TIMED_OUT);
  pthread_t thread;
  uint64_t began = redbolt_now_ns();
  EXPECT(pthread_create(&thread, NULL, extend_and_unlock, &lease) == 0);
  EXPECT(redbolt_wait_lost(client, lease, 15 * REDBOLT_S, NULL) == REDBOLT_NOT_A_LEASE);
  EXPECT(redbolt_now_ns() - began < 10 * REDBOLT_S);
  pthread_join(thread, NULL);
}

static void loss(void) {
  /* Long enough for a machine on which a lock takes its time, as under Valgrind. */
  redbolt_lease brief = lock("brief", (redbolt_options){.ttl_ns = REDBOLT_S});
  EXPECT(redbolt_wait_lost(client, brief, 15 * REDBOLT_S, &error) == REDBOLT_LOST);
  EXPECT(redbolt_remaining_ns(client, brief) == 0);
  EXPECT(redbolt_extend(client, brief, REDBOLT_S, NULL) == REDBOLT_EXPIRED);
  must(redbolt_release(client, brief, &error), &error, "redbolt_release");

  redbolt_options kept = {.ttl_ns = 2 * REDBOLT_S, .flags = REDBOLT_KEEP_ALIVE};
  redbolt_lease deleted = lock("deleted", kept);
  EXPECT(redbolt_wait_lost(client, deleted, 2500 * REDBOLT_MS, NULL) == REDBOLT_TIMED_OUT);
  puts("delete deleted");
  fflush(stdout);
  EXPECT(redbolt_wait_lost(client, deleted, 15 * REDBOLT_S, &error) == REDBOLT_LOST);
  EXPECT(state(deleted).is_lost && state(deleted).remaining_ns == 0);
  EXPECT(redbolt_unlock(client, deleted, NULL) == REDBOLT_NOT_HELD);
}

static redbolt_completion next(redbolt_driver *driver) {
  redbolt_completion done;
  uint64_t end = redbolt_now_ns() + 15 * REDBOLT_S;
  for (;;) {
    must(redbolt_driver_drive(driver, &error), &error, "redbolt_driver_drive");
    if (redbolt_driver_completions(driver, &done, &error, 1) == 1) return done;
    EXPECT(redbolt_now_ns() < end);
    int64_t timeout = redbolt_driver_timeout_ns(driver);
    struct pollfd watched = {.fd = redbolt_driver_fd(driver), .events = POLLIN};
    poll(&watched, 1, timeout < 0 || timeout > 100000000 ? 100 : (int)(timeout / 1000000 + 1));
  }
}

/* Each completion comes with the pointer of its call; a loss with that of the call for the lock. */
static void loss_in_a_loop(redbolt_config *config) {
  redbolt_driver *driver;
  int of_lock, of_extension, of_other;
  redbolt_options options = {.ttl_ns = 3 * REDBOLT_S, .flags = REDBOLT_KEEP_ALIVE};
  must(redbolt_driver_new(config, &driver, &error), &error, "redbolt_driver_new");
  must(redbolt_driver_lock(driver, "other", 5, &options, &of_other, NULL, &error), &error, "other");
  redbolt_completion other = next(driver);
  must(redbolt_driver_lock(driver, "driven", 6, &options, &of_lock, NULL, &error), &error, "driven");
  redbolt_completion won = next(driver);
  EXPECT(won.event == REDBOLT_LOCKED && won.code == REDBOLT_OK && won.user == &of_lock);
  must(redbolt_driver_extend(driver, won.lease, 3 * REDBOLT_S, &of_extension, NULL, &error), &error, "extend");
  redbolt_completion extended = next(driver);
  EXPECT(extended.event == REDBOLT_EXTENDED && extended.code == REDBOLT_OK);
  EXPECT(extended.user == &of_extension && extended.lease.serial == won.lease.serial);
  puts("delete driven");
  fflush(stdout);
  redbolt_completion lost = next(driver);
  EXPECT(lost.event == REDBOLT_LEASE_LOST && lost.code == REDBOLT_LOST && lost.user == &of_lock);
  EXPECT(lost.lease.serial == won.lease.serial && lost.lease.place == won.lease.place);
  EXPECT(redbolt_driver_remaining_ns(driver, lost.lease) == 0);
  EXPECT(redbolt_driver_remaining_ns(driver, other.lease) > 0);
  must(redbolt_driver_release(driver, lost.lease, &error), &error, "redbolt_driver_release");
  must(redbolt_driver_unlock(driver, other.lease, &of_other, NULL, &error), &error, "unlock");
  EXPECT(redbolt_driver_unlock(driver, other.lease, NULL, NULL, NULL) == REDBOLT_NOT_A_LEASE);
  redbolt_completion ended = next(driver);
  EXPECT(ended.event == REDBOLT_UNLOCKED && ended.code == REDBOLT_OK && ended.user == &of_other);
  must(redbolt_driver_lock(driver, "held", 4, &options, NULL, NULL, &error), &error, "held");
  redbolt_completion held = next(driver);
  redbolt_op late;
  must(redbolt_driver_lock(driver, "late", 4, &options, &of_lock, &late, &error), &error, "late");
  uint64_t owed = 1;
  must(redbolt_driver_shutdown(driver, 5 * REDBOLT_S, &owed, &error), &error, "shutdown");
  EXPECT(owed == 0);
  EXPECT(redbolt_driver_cancel(driver, late, NULL) == REDBOLT_OK);
  EXPECT(redbolt_driver_completions(driver, &ended, &error, 1) == 1);
  EXPECT(ended.event == REDBOLT_LOCKED && ended.code == REDBOLT_CLOSED && ended.user == &of_lock);
  EXPECT(redbolt_driver_completions(driver, &ended, &error, 1) == 0);
  EXPECT(redbolt_driver_cancel(driver, late, NULL) == REDBOLT_INVALID_ARGUMENT);
  EXPECT(redbolt_driver_lock(driver, "late", 4, &options, NULL, NULL, NULL) == REDBOLT_CLOSED);
  must(redbolt_driver_extend(driver, held.lease, 3 * REDBOLT_S, NULL, NULL, &error), &error, "extend");
  EXPECT(next(driver).code == REDBOLT_OK);
  must(redbolt_driver_unlock(driver, held.lease, NULL, NULL, &error), &error, "unlock");
  EXPECT(next(driver).code == REDBOLT_OK);
  redbolt_driver_free(driver);
}

/* A driver that is freed releases what it holds, so the next caller need not wait for the TTL. */
static void the_end_of_a_driver(redbolt_config *config) {
  redbolt_driver *driver;
  must(redbolt_driver_new(config, &driver, &error), &error, "redbolt_driver_new");
  redbolt_options options = {.ttl_ns = 20 * REDBOLT_S, .timeout_ns = 10 * REDBOLT_S};
  must(redbolt_driver_lock(driver, "left", 4, &options, NULL, NULL, &error), &error, "left");
  EXPECT(next(driver).code == REDBOLT_OK);
  redbolt_driver_free(driver);
  unlock(lock("left", options));
}

/* The child gets no lock, and its end releases nothing of its parent's. */
static void the_child_of_a_fork(redbolt_config *config) {
  redbolt_driver *driver;
  must(redbolt_driver_new(config, &driver, &error), &error, "redbolt_driver_new");
  redbolt_lease lease = lock("parent", (redbolt_options){.ttl_ns = 10 * REDBOLT_S}), other;
  redbolt_options options = {.ttl_ns = 10 * REDBOLT_S};
  fflush(NULL);
  pid_t child = fork();
  EXPECT(child >= 0);
  if (child == 0) {
    redbolt_code code = redbolt_try_lock(client, "child", 5, &options, &other, NULL);
    /* The child has the sockets of its parent's driver: it would read the answers of the parent. */
    if (redbolt_driver_timeout_ns(driver) != 0) _exit(4);
    if (redbolt_driver_drive(driver, NULL) != REDBOLT_CLOSED) _exit(2);
    if (redbolt_driver_try_lock(driver, "child", 5, &options, NULL, NULL, NULL) != REDBOLT_CLOSED) _exit(3);
    _exit(code == REDBOLT_CLOSED && redbolt_unlock(client, lease, NULL) == REDBOLT_CLOSED ? 0 : 1);
  }
  int status;
  EXPECT(waitpid(child, &status, 0) == child && status == 0);
  must(redbolt_driver_drive(driver, &error), &error, "redbolt_driver_drive");
  redbolt_driver_free(driver);
  unlock(lease);
}

int main(int argc, char **argv) {
  redbolt_config *config = config_of(argc, argv);
  must(redbolt_client_new(config, &client, &error), &error, "redbolt_client_new");
  several_keys();
  slots();
  loss_in_a_loop(config);
  the_end_of_a_driver(config);
  fences(config);
  loss_beside_threads();
  loss();
  the_child_of_a_fork(config);
  uint64_t owed = 1;
  must(redbolt_client_shutdown(client, 5 * REDBOLT_S, &owed, &error), &error, "shutdown");
  EXPECT(owed == 0);
  redbolt_options options = {.ttl_ns = REDBOLT_S};
  redbolt_lease late;
  EXPECT(redbolt_lock(client, "late", 4, &options, &late, &error) == REDBOLT_CLOSED);
  redbolt_client_free(client);
  redbolt_config_free(config);
  puts("all as it should be");
  return 0;
}
