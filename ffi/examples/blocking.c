/* Locks for threads: take one, use it, extend it, give it back. usage: blocking ADDRESS.. */
#include "check.h"

int main(int argc, char **argv) {
  redbolt_error error;
  redbolt_client *client;
  redbolt_config *config = config_of(argc, argv);
  must(redbolt_client_new(config, &client, &error), &error, "redbolt_client_new");
  redbolt_config_free(config);

  redbolt_options options = {.ttl_ns = 10 * REDBOLT_S};
  redbolt_lease lease, second;
  must(redbolt_lock(client, "invoice:7", 9, &options, &lease, &error), &error, "redbolt_lock");
  /* Right before each effect that needs the lock: */
  if (redbolt_remaining_ns(client, lease) > 100 * REDBOLT_MS) puts("the invoice is written here");

  if (redbolt_try_lock(client, "invoice:7", 9, &options, &second, &error) != REDBOLT_TAKEN) return 2;
  printf("a second caller: %s\n", (const char *)error.message);

  must(redbolt_extend(client, lease, 20 * REDBOLT_S, &error), &error, "redbolt_extend");
  if (redbolt_remaining_ns(client, lease) < 15 * REDBOLT_S) return 3;

  must(redbolt_unlock(client, lease, &error), &error, "redbolt_unlock");
  if (redbolt_unlock(client, lease, &error) != REDBOLT_NOT_A_LEASE) return 4;
  printf("a second unlock: %s\n", (const char *)error.message);
  redbolt_client_free(client);
  return 0;
}
