/* What the examples with a loop do under locks: eight orders, each locked, shipped and unlocked. */
#ifndef ORDERS_H
#define ORDERS_H
#include "check.h"

enum { ORDERS = 8 };

struct orders {
  redbolt_driver *driver;
  char keys[ORDERS][24];
  int shipped;
};

static inline void begin_orders(struct orders *orders, int argc, char **argv) {
  redbolt_error error;
  redbolt_config *config = config_of(argc, argv);
  must(redbolt_driver_new(config, &orders->driver, &error), &error, "redbolt_driver_new");
  redbolt_config_free(config);
  redbolt_options options;
  memset(&options, 0, sizeof options);
  options.ttl_ns = 10 * REDBOLT_S;
  options.flags = REDBOLT_KEEP_ALIVE;
  for (int i = 0; i < ORDERS; i++) {
    char *key = orders->keys[i];
    int len = snprintf(key, sizeof orders->keys[i], "order:%d", i);
    must(redbolt_driver_lock(orders->driver, key, (size_t)len, &options, key, NULL, &error), &error, key);
  }
}

/* Drives, and serves what has ended. Returns whether there is more to do. */
static inline bool serve_orders(struct orders *orders) {
  redbolt_error error, errors[4];
  redbolt_completion done[4];
  size_t count;
  must(redbolt_driver_drive(orders->driver, &error), &error, "redbolt_driver_drive");
  while ((count = redbolt_driver_completions(orders->driver, done, errors, 4)) > 0) {
    for (size_t i = 0; i < count; i++) {
      must((redbolt_code)done[i].code, &errors[i], (const char *)done[i].user);
      if (done[i].event == REDBOLT_UNLOCKED) orders->shipped++;
      if (done[i].event != REDBOLT_LOCKED) continue;
      /* Right before the order is shipped: */
      if (redbolt_driver_remaining_ns(orders->driver, done[i].lease) < REDBOLT_S) exit(3);
      must(redbolt_driver_unlock(orders->driver, done[i].lease, done[i].user, NULL, &error), &error,
           "redbolt_driver_unlock");
    }
  }
  /* The unlocks are written now, and not by the next drive. */
  must(redbolt_driver_flush(orders->driver, &error), &error, "redbolt_driver_flush");
  return orders->shipped < ORDERS;
}

/* For loops that count in milliseconds: rounded up, so that they do not spin before the time. -1: never. */
static inline int64_t timeout_ms(redbolt_driver *driver) {
  int64_t ns = redbolt_driver_timeout_ns(driver);
  return ns < 0 ? -1 : ns / 1000000 + (ns % 1000000 > 0);
}

static inline void end_orders(struct orders *orders) {
  printf("shipped %d orders\n", orders->shipped);
  redbolt_driver_free(orders->driver);
}
#endif
