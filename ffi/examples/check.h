/* How the examples end when a call fails: with the call, the code and the library's message. */
#ifndef CHECK_H
#define CHECK_H
#include <redbolt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void must(redbolt_code code, const redbolt_error *error, const char *call) {
  if (code == REDBOLT_OK) return;
  fprintf(stderr, "%s: %s: %s\n", call, redbolt_code_name(code), (const char *)error->message);
  exit(1);
}

/* A configuration of the nodes that the command line names. */
static inline redbolt_config *config_of(int argc, char **argv) {
  redbolt_config *config;
  redbolt_error error;
  must(redbolt_config_new((const char *const *)argv + 1, (size_t)argc - 1, &config, &error), &error,
       "redbolt_config_new");
  /* For a test alone, where nodes have just started and a busy machine may be slow. */
  must(redbolt_config_set(config, REDBOLT_RESTART_GUARD, 0, &error), &error, "redbolt_config_set");
  must(redbolt_config_set(config, REDBOLT_NODE_TIMEOUT_NS, 2 * REDBOLT_S, &error), &error, "set");
  return config;
}
#endif
