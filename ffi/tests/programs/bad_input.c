/* Bad input of many kinds: each gets its code and a message, and none crashes. usage: .. ADDRESS.. */
#include "../../examples/check.h"

static int kinds;
static redbolt_error error;

/* Each call is one kind of bad input, told to the error of this file. */
#define REFUSED(expected, call)                                                             \
  do {                                                                                      \
    memset(&error, 0xa5, sizeof error);                                                     \
    redbolt_code code = (call);                                                             \
    kinds++;                                                                                \
    if (code != (expected) || error.code != code || error.message[0] == 0 ||                \
        memchr(error.message, 0, sizeof error.message) == NULL) {                           \
      fprintf(stderr, "line %d: %s: %s\n", __LINE__, redbolt_code_name(code), error.message); \
      exit(1);                                                                              \
    }                                                                                       \
  } while (0)

/* What returns a plain value says nothing of an object that is not there. */
#define NOTHING(condition)                                    \
  do {                                                        \
    kinds++;                                                  \
    if (!(condition)) {                                       \
      fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
      exit(1);                                                \
    }                                                         \
  } while (0)

#define BAD REDBOLT_INVALID_ARGUMENT
#define STALE REDBOLT_NOT_A_LEASE

static const redbolt_options plain = {.ttl_ns = 10 * REDBOLT_S};
static const redbolt_lease none = {0, 0}, wild = {UINT64_MAX, UINT64_MAX}, far = {1, 1u << 31};

static void configurations(char **nodes, size_t count) {
  redbolt_config *made;
  const char *const *good = (const char *const *)nodes;
  const char *not_utf8[] = {"redis://\xff\xfe"}, *null[] = {NULL}, *scheme[] = {"ftp://x"};
  const char *twice[] = {nodes[0], nodes[0]}, *many[65] = {0};
  REFUSED(BAD, redbolt_config_new(NULL, 3, &made, &error));
  REFUSED(BAD, redbolt_config_new(good, 3, NULL, &error));
  REFUSED(REDBOLT_INVALID_CONFIG, redbolt_config_new(good, 0, &made, &error));
  REFUSED(BAD, redbolt_config_new(good, SIZE_MAX, &made, &error));
  REFUSED(BAD, redbolt_config_new(many, 65, &made, &error));
  REFUSED(BAD, redbolt_config_new(not_utf8, 1, &made, &error));
  REFUSED(BAD, redbolt_config_new(null, 1, &made, &error));
  REFUSED(REDBOLT_INVALID_CONFIG, redbolt_config_new(scheme, 1, &made, &error));
  NOTHING(made == NULL);
  redbolt_config_free(NULL);

  must(redbolt_config_new(good, count, &made, &error), &error, "redbolt_config_new");
  REFUSED(BAD, redbolt_config_set(NULL, REDBOLT_QUORUM, 2, &error));
  REFUSED(BAD, redbolt_config_set(made, 0, 2, &error));
  REFUSED(BAD, redbolt_config_set(made, UINT32_MAX, 2, &error));
  REFUSED(BAD, redbolt_config_set(made, REDBOLT_RESTART_GUARD, 2, &error));
  REFUSED(BAD, redbolt_config_set(made, REDBOLT_MAX_EXTENSIONS, UINT64_MAX, &error));
  REFUSED(BAD, redbolt_config_set_text(NULL, REDBOLT_USERNAME, "x", 1, &error));
  REFUSED(BAD, redbolt_config_set_text(made, 99, "x", 1, &error));
  REFUSED(BAD, redbolt_config_set_text(made, REDBOLT_USERNAME, NULL, 1, &error));
  REFUSED(BAD, redbolt_config_set_text(made, REDBOLT_USERNAME, "x", SIZE_MAX, &error));
  REFUSED(BAD, redbolt_config_set_text(made, REDBOLT_USERNAME, "\xff", 1, &error));

  redbolt_client *client;
  redbolt_driver *driver;
  REFUSED(BAD, redbolt_client_new(NULL, &client, &error));
  REFUSED(BAD, redbolt_client_new(made, NULL, &error));
  REFUSED(BAD, redbolt_driver_new(NULL, &driver, &error));
  REFUSED(BAD, redbolt_driver_new(made, NULL, &error));
  must(redbolt_config_set(made, REDBOLT_QUORUM, 1, &error), &error, "set");
  REFUSED(REDBOLT_INVALID_CONFIG, redbolt_client_new(made, &client, &error));
  REFUSED(REDBOLT_INVALID_CONFIG, redbolt_driver_new(made, &driver, &error));
  must(redbolt_config_set(made, REDBOLT_QUORUM, 2, &error), &error, "set");
  must(redbolt_config_set(made, REDBOLT_IN_FLIGHT_MAX, UINT64_MAX, &error), &error, "set");
  REFUSED(REDBOLT_INVALID_CONFIG, redbolt_client_new(made, &client, &error));
  NOTHING(client == NULL && driver == NULL);
  redbolt_config_free(made);
  REFUSED(REDBOLT_INVALID_CONFIG, redbolt_config_new(twice, 2, &made, &error));
}

static void options_and_keys(redbolt_client *client) {
  redbolt_lease lease;
  redbolt_options short_ttl = {.ttl_ns = 1}, long_ttl = {.ttl_ns = UINT64_MAX}, zero = {0};
  redbolt_options flags = plain, slots = plain, both = plain, write = plain, lingers = plain;
  flags.flags = UINT32_MAX;
  slots.slots = 64;
  both.slots = both.readers = 2;
  write.flags = REDBOLT_WRITE;
  lingers.linger_ns = REDBOLT_S, lingers.flags = REDBOLT_FENCED;
  REFUSED(BAD, redbolt_lock(NULL, "k", 1, &plain, &lease, &error));
  REFUSED(BAD, redbolt_lock(client, NULL, 1, &plain, &lease, &error));
  REFUSED(BAD, redbolt_lock(client, "k", 0, &plain, &lease, &error));
  REFUSED(BAD, redbolt_lock(client, "k", SIZE_MAX, &plain, &lease, &error));
  REFUSED(BAD, redbolt_lock(client, "k", 1, NULL, &lease, &error));
  REFUSED(BAD, redbolt_lock(client, "k", 1, &plain, NULL, &error));
  REFUSED(BAD, redbolt_lock(client, "k:fence", 7, &plain, &lease, &error));
  REFUSED(BAD, redbolt_try_lock(client, "k", 1, &zero, &lease, &error));
  REFUSED(BAD, redbolt_try_lock(client, "k", 1, &short_ttl, &lease, &error));
  REFUSED(BAD, redbolt_try_lock(client, "k", 1, &long_ttl, &lease, &error));
  REFUSED(BAD, redbolt_try_lock(client, "k", 1, &flags, &lease, &error));
  REFUSED(BAD, redbolt_try_lock(client, "k", 1, &slots, &lease, &error));
  REFUSED(BAD, redbolt_try_lock(client, "k", 1, &both, &lease, &error));
  REFUSED(BAD, redbolt_try_lock(client, "k", 1, &write, &lease, &error));
  REFUSED(BAD, redbolt_try_lock(client, "k", 1, &lingers, &lease, &error));
  redbolt_key null[] = {{NULL, 1}}, same[] = {{"k", 1}, {"k", 1}}, many[65] = {{0}};
  REFUSED(BAD, redbolt_lock_all(client, NULL, 1, &plain, &lease, &error));
  REFUSED(BAD, redbolt_lock_all(client, same, 0, &plain, &lease, &error));
  REFUSED(BAD, redbolt_lock_all(client, null, 1, &plain, &lease, &error));
  REFUSED(BAD, redbolt_lock_all(client, same, 2, &plain, &lease, &error));
  REFUSED(BAD, redbolt_try_lock_all(client, many, 65, &plain, &lease, &error));
  REFUSED(BAD, redbolt_try_lock_all(client, same, SIZE_MAX, &plain, &lease, &error));
  NOTHING(lease.serial == 0);
}

static void leases(redbolt_client *client, redbolt_client *other) {
  redbolt_lease held, of_other, changed;
  redbolt_lease_info info;
  must(redbolt_lock(client, "held", 4, &plain, &held, &error), &error, "held");
  must(redbolt_lock(other, "other", 5, &plain, &of_other, &error), &error, "other");
  changed = held;
  changed.place++;
  REFUSED(STALE, redbolt_unlock(client, none, &error));
  REFUSED(STALE, redbolt_unlock(client, wild, &error));
  REFUSED(STALE, redbolt_unlock(client, far, &error));
  REFUSED(STALE, redbolt_unlock(client, changed, &error));
  REFUSED(STALE, redbolt_unlock(client, of_other, &error));
  REFUSED(STALE, redbolt_extend(client, of_other, REDBOLT_S, &error));
  REFUSED(STALE, redbolt_release(client, of_other, &error));
  REFUSED(STALE, redbolt_wait_lost(client, of_other, REDBOLT_S, &error));
  REFUSED(STALE, redbolt_lease_state(client, of_other, &info, &error));
  REFUSED(BAD, redbolt_lease_state(client, held, NULL, &error));
  REFUSED(BAD, redbolt_extend(client, held, UINT64_MAX, &error));
  REFUSED(BAD, redbolt_unlock(NULL, held, &error));
  must(redbolt_unlock(client, held, &error), &error, "held");
  REFUSED(STALE, redbolt_unlock(client, held, &error));
  REFUSED(STALE, redbolt_extend(client, held, REDBOLT_S, &error));
  REFUSED(STALE, redbolt_release(client, held, &error));
  NOTHING(redbolt_remaining_ns(client, held) == 0 && redbolt_remaining_ns(NULL, held) == 0);
  /* The next lease may have the place of the one that is over, and is not it. */
  redbolt_lease next;
  must(redbolt_lock(client, "held", 4, &plain, &next, &error), &error, "next");
  REFUSED(STALE, redbolt_unlock(client, held, &error));
  NOTHING(redbolt_remaining_ns(client, next) > 0);
  REFUSED(BAD, redbolt_client_shutdown(NULL, 0, NULL, &error));
  redbolt_client_free(NULL);
}

static void drivers(redbolt_config *config, redbolt_client *client) {
  redbolt_driver *driver;
  redbolt_completion done[2];
  redbolt_op op, no_op = {7, 7}, wild_op = {UINT64_MAX, UINT64_MAX};
  redbolt_lease of_client;
  redbolt_lease_info info;
  must(redbolt_driver_new(config, &driver, &error), &error, "redbolt_driver_new");
  must(redbolt_lock(client, "client's", 8, &plain, &of_client, &error), &error, "client's");
  NOTHING(redbolt_driver_fd(NULL) == -1 && redbolt_driver_timeout_ns(NULL) == 0);
  NOTHING(!redbolt_driver_is_ready(NULL) && redbolt_driver_completions(NULL, done, NULL, 2) == 0);
  REFUSED(BAD, redbolt_driver_drive(NULL, &error));
  REFUSED(BAD, redbolt_driver_flush(NULL, &error));
  REFUSED(BAD, redbolt_driver_lock(NULL, "k", 1, &plain, NULL, &op, &error));
  REFUSED(BAD, redbolt_driver_lock(driver, NULL, 1, &plain, NULL, &op, &error));
  REFUSED(BAD, redbolt_driver_try_lock(driver, "k", 0, &plain, NULL, &op, &error));
  REFUSED(BAD, redbolt_driver_try_lock(driver, "k", 1, NULL, NULL, &op, &error));
  REFUSED(BAD, redbolt_driver_lock_all(driver, NULL, 1, &plain, NULL, &op, &error));
  REFUSED(BAD, redbolt_driver_try_lock_all(driver, NULL, 1, &plain, NULL, &op, &error));
  REFUSED(STALE, redbolt_driver_unlock(driver, of_client, NULL, &op, &error));
  REFUSED(STALE, redbolt_driver_extend(driver, of_client, REDBOLT_S, NULL, &op, &error));
  REFUSED(STALE, redbolt_driver_release(driver, none, &error));
  REFUSED(STALE, redbolt_driver_lease_state(driver, wild, &info, &error));
  REFUSED(BAD, redbolt_driver_cancel(driver, no_op, &error));
  REFUSED(BAD, redbolt_driver_cancel(driver, wild_op, &error));
  REFUSED(BAD, redbolt_driver_shutdown(NULL, 0, NULL, &error));
  NOTHING(redbolt_driver_remaining_ns(driver, of_client) == 0);

  must(redbolt_driver_lock(driver, "k", 1, &plain, done, &op, &error), &error, "k");
  must(redbolt_driver_cancel(driver, op, &error), &error, "cancel");
  NOTHING(redbolt_driver_completions(driver, NULL, NULL, 2) == 0);
  NOTHING(redbolt_driver_completions(driver, done, NULL, 0) == 0);
  NOTHING(redbolt_driver_completions(driver, done, &error, 1) == 1);
  NOTHING(done[0].code == REDBOLT_CANCELLED && done[0].user == done && done[0].lease.serial == 0);
  REFUSED(BAD, redbolt_driver_cancel(driver, op, &error));
  redbolt_driver_free(driver);
  redbolt_driver_free(NULL);
}

int main(int argc, char **argv) {
  redbolt_client *client, *other;
  configurations(argv + 1, (size_t)argc - 1);
  redbolt_config *config = config_of(argc, argv);
  must(redbolt_client_new(config, &client, &error), &error, "redbolt_client_new");
  must(redbolt_client_new(config, &other, &error), &error, "redbolt_client_new");
  options_and_keys(client);
  leases(client, other);
  drivers(config, client);
  NOTHING(strcmp(redbolt_code_name(-1), redbolt_code_name(99)) == 0);
  redbolt_client_free(client);
  redbolt_client_free(other);
  redbolt_config_free(config);
  printf("%d kinds\n", kinds);
  return 0;
}
