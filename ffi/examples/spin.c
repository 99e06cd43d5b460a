/* Locks in a loop that never sleeps, and so suits a core of its own. usage: spin ADDRESS.. */
#include "check.h"

enum { SIGNALS = 100 };

int main(int argc, char **argv) {
  redbolt_error error;
  redbolt_driver *driver;
  redbolt_config *config = config_of(argc, argv);
  must(redbolt_driver_new(config, &driver, &error), &error, "redbolt_driver_new");
  redbolt_config_free(config);

  uint64_t end = redbolt_now_ns() + 10 * REDBOLT_S;
  while (!redbolt_driver_is_ready(driver)) {
    if (redbolt_now_ns() > end) return 2;
    redbolt_driver_drive(driver, NULL);
  }

  redbolt_options options = {.ttl_ns = 10 * REDBOLT_S};
  uint64_t began[SIGNALS], longest = 0;
  int sent = 0, traded = 0, is_busy = 0;
  while (traded < SIGNALS) {
    /* The market is looked at here. */
    if (!is_busy && sent < SIGNALS) {
      char key[24];
      int len = snprintf(key, sizeof key, "signal:%d", sent);
      began[sent] = redbolt_now_ns();
      must(redbolt_driver_try_lock(driver, key, (size_t)len, &options, &began[sent], NULL, &error),
           &error, "redbolt_driver_try_lock");
      redbolt_driver_flush(driver, NULL); /* writes now, not behind the reads of the next drive */
      sent++;
      is_busy = 1;
    }
    redbolt_driver_drive(driver, NULL);
    redbolt_completion done[4];
    redbolt_error errors[4];
    size_t count = redbolt_driver_completions(driver, done, errors, 4);
    for (size_t i = 0; i < count; i++) {
      if (done[i].event != REDBOLT_LOCKED) continue;
      must(done[i].code, &errors[i], "a signal");
      uint64_t took = redbolt_now_ns() - *(uint64_t *)done[i].user;
      if (took > longest) longest = took;
      must(redbolt_driver_release(driver, done[i].lease, &error), &error, "release");
      traded++;
      is_busy = 0;
    }
  }
  printf("traded %d signals, the slowest lock after %llu us\n", traded,
         (unsigned long long)(longest / 1000));
  redbolt_driver_free(driver);
  return 0;
}
