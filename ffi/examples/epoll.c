/* Locks in a loop on epoll, with no thread: one descriptor and one timeout. usage: epoll ADDRESS.. */
#include "check.h"
#include <sys/epoll.h>
#include <unistd.h>

enum { ORDERS = 8 };

struct order {
  char key[24];
  redbolt_lease lease;
};

static void lock_order(redbolt_driver *driver, struct order *order) {
  redbolt_error error;
  redbolt_options options = {.ttl_ns = 10 * REDBOLT_S, .flags = REDBOLT_KEEP_ALIVE};
  must(redbolt_driver_lock(driver, order->key, strlen(order->key), &options, order, NULL, &error),
       &error, "redbolt_driver_lock");
}

/* epoll counts in milliseconds: rounded up, so that the loop does not spin before the deadline. */
static int epoll_timeout(redbolt_driver *driver) {
  int64_t ns = redbolt_driver_timeout_ns(driver);
  if (ns < 0) return -1;
  return ns / 1000000 >= 60000 ? 60000 : (int)((ns + 999999) / 1000000);
}

int main(int argc, char **argv) {
  redbolt_error error;
  redbolt_driver *driver;
  redbolt_config *config = config_of(argc, argv);
  must(redbolt_driver_new(config, &driver, &error), &error, "redbolt_driver_new");
  redbolt_config_free(config);

  int epoll = epoll_create1(EPOLL_CLOEXEC);
  struct epoll_event watched = {.events = EPOLLIN, .data.u32 = 7};
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, redbolt_driver_fd(driver), &watched) != 0) return 2;

  struct order orders[ORDERS] = {0};
  for (int i = 0; i < ORDERS; i++) {
    snprintf(orders[i].key, sizeof orders[i].key, "order:%d", i);
    lock_order(driver, &orders[i]);
  }
  int shipped = 0;
  while (shipped < ORDERS) {
    must(redbolt_driver_drive(driver, &error), &error, "redbolt_driver_drive");
    redbolt_completion done[4];
    redbolt_error errors[4];
    size_t count;
    while ((count = redbolt_driver_completions(driver, done, errors, 4)) > 0) {
      for (size_t i = 0; i < count; i++) {
        struct order *order = done[i].user;
        must(done[i].code, &errors[i], order->key);
        if (done[i].event == REDBOLT_LOCKED) {
          order->lease = done[i].lease;
          if (redbolt_driver_remaining_ns(driver, order->lease) < REDBOLT_S) return 3;
          must(redbolt_driver_unlock(driver, order->lease, order, NULL, &error), &error, "unlock");
        } else if (done[i].event == REDBOLT_UNLOCKED) {
          shipped++;
        }
      }
    }
    if (shipped == ORDERS) break;
    struct epoll_event events[4];
    epoll_wait(epoll, events, 4, epoll_timeout(driver)); /* the program's own events are served here */
  }
  printf("shipped %d orders\n", shipped);
  redbolt_driver_free(driver);
  close(epoll);
  return 0;
}
