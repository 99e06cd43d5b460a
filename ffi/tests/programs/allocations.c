/* Locks that a warm client and a warm driver take and give back allocate nothing. usage: .. ADDRESS..
   The definitions of the allocator's functions here are those of the library too. */
#include "../../examples/check.h"
#include <errno.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

static _Atomic unsigned long allocations;

void *malloc(size_t size) {
  allocations++;
  return __libc_malloc(size);
}
void *calloc(size_t count, size_t size) {
  allocations++;
  return __libc_calloc(count, size);
}
void *realloc(void *old, size_t size) {
  allocations++;
  return __libc_realloc(old, size);
}
int posix_memalign(void **place, size_t alignment, size_t size) {
  allocations++;
  *place = __libc_memalign(alignment, size);
  return *place == NULL ? ENOMEM : 0;
}

enum { WARM = 200, COUNTED = 500 };

static redbolt_error error;
static const redbolt_options options = {.ttl_ns = 10 * REDBOLT_S};

static void cycle_of_client(void *object) {
  redbolt_client *client = object;
  redbolt_lease lease;
  must(redbolt_try_lock(client, "k", 1, &options, &lease, &error), &error, "redbolt_try_lock");
  must(redbolt_extend(client, lease, 10 * REDBOLT_S, &error), &error, "redbolt_extend");
  must(redbolt_unlock(client, lease, &error), &error, "redbolt_unlock");
}

static redbolt_lease next(redbolt_driver *driver) {
  redbolt_completion done;
  while (redbolt_driver_completions(driver, &done, &error, 1) == 0) redbolt_driver_drive(driver, NULL);
  must(done.code, &error, "a completion");
  return done.lease;
}

static void cycle_of_driver(void *object) {
  redbolt_driver *driver = object;
  must(redbolt_driver_try_lock(driver, "d", 1, &options, object, NULL, &error), &error, "try_lock");
  redbolt_lease lease = next(driver);
  must(redbolt_driver_unlock(driver, lease, object, NULL, &error), &error, "unlock");
  next(driver);
}

/* The least of some rounds: a busy machine may cost a connection, whose return allocates. */
static unsigned long counted(void (*cycle)(void *), void *object) {
  unsigned long least = ~0ul;
  for (int i = 0; i < WARM; i++) cycle(object);
  for (int round = 0; round < 3; round++) {
    unsigned long before = allocations;
    for (int i = 0; i < COUNTED; i++) cycle(object);
    if (allocations - before < least) least = allocations - before;
  }
  return least;
}

int main(int argc, char **argv) {
  redbolt_client *client;
  redbolt_driver *driver;
  redbolt_config *config = config_of(argc, argv);
  must(redbolt_client_new(config, &client, &error), &error, "redbolt_client_new");
  must(redbolt_driver_new(config, &driver, &error), &error, "redbolt_driver_new");
  unsigned long begun = allocations;
  unsigned long of_client = counted(cycle_of_client, client);
  unsigned long of_driver = counted(cycle_of_driver, driver);
  redbolt_driver_free(driver);
  redbolt_client_free(client);
  redbolt_config_free(config);
  if (begun == 0) return 2; /* nothing was counted */
  printf("client %lu, driver %lu\n", of_client, of_driver);
  return 0;
}
