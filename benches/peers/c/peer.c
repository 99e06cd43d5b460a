/* Redbolt's library for C behind the line protocol of benches/peers/README.md. */
#include <pthread.h>
#include <redbolt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define HELD_MAX 16
#define KEY_MAX 128
#define TTL_NS (10 * REDBOLT_S)

/* A lock that this program holds; a free place has an empty key. */
struct held {
  char key[KEY_MAX];
  redbolt_lease lease;
};

static struct held locks[HELD_MAX];
static redbolt_client *client;
static redbolt_config *config;
static int is_tuned;

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void must(redbolt_code code, const redbolt_error *error) {
  if (code == REDBOLT_OK) return;
  fprintf(stderr, "%s: %s\n", redbolt_code_name(code), (const char *)error->message);
  exit(1);
}

static void say_error(redbolt_code code) { printf("{\"error\":\"%s\"}\n", redbolt_code_name(code)); }

static struct held *place_of(const char *key) {
  for (size_t at = 0; at < HELD_MAX; at++)
    if (strcmp(locks[at].key, key) == 0) return &locks[at];
  return NULL;
}

/* Takes the lock and keeps it under its key. */
static redbolt_code take(const char *key, uint64_t ttl_ms, int is_once, uint64_t *from, uint64_t *to) {
  redbolt_options options = {.ttl_ns = ttl_ms * REDBOLT_MS};
  struct held *held = place_of("");
  if (held == NULL || strlen(key) >= KEY_MAX) return REDBOLT_FULL;
  *from = now();
  redbolt_code code = (is_once ? redbolt_try_lock : redbolt_lock)(client, key, strlen(key), &options,
                                                                  &held->lease, NULL);
  *to = now();
  if (code == REDBOLT_OK) strcpy(held->key, key);
  return code;
}

static redbolt_code give_back(const char *key, uint64_t *from, uint64_t *to) {
  struct held *held = place_of(key);
  if (held == NULL) return REDBOLT_NOT_A_LEASE;
  *from = now();
  redbolt_code code = redbolt_unlock(client, held->lease, NULL);
  *to = now();
  held->key[0] = 0;
  return code;
}

static void try_lock(const char *key, uint64_t ttl_ms) {
  uint64_t from, to;
  redbolt_code code = take(key, ttl_ms, 1, &from, &to);
  if (code == REDBOLT_OK || code == REDBOLT_TAKEN)
    printf("{\"won\":%s}\n", code == REDBOLT_OK ? "true" : "false");
  else
    say_error(code);
}

static void lock(const char *key, uint64_t ttl_ms) {
  uint64_t from, to;
  redbolt_code code = take(key, ttl_ms, 0, &from, &to);
  if (code != REDBOLT_OK) return say_error(code);
  printf("{\"from\":%llu,\"to\":%llu}\n", (unsigned long long)from, (unsigned long long)to);
}

static void unlock(const char *key) {
  uint64_t from, to;
  redbolt_code code = give_back(key, &from, &to);
  if (code == REDBOLT_NOT_A_LEASE) return say_error(code);
  printf("{\"from\":%llu,\"to\":%llu,\"held\":%s}\n", (unsigned long long)from, (unsigned long long)to,
         code == REDBOLT_OK ? "true" : "false");
}

static void extend(const char *key, uint64_t ttl_ms) {
  struct held *held = place_of(key);
  if (held == NULL) return say_error(REDBOLT_NOT_A_LEASE);
  redbolt_code code = redbolt_extend(client, held->lease, ttl_ms * REDBOLT_MS, NULL);
  printf("{\"held\":%s}\n", code == REDBOLT_OK ? "true" : "false");
}

/* Takes the lock again and again, and tells the times for which it held it. */
static void hold(const char *key, uint64_t ttl_ms, uint64_t pause_ms, uint64_t time_ms) {
  uint64_t end = now() + time_ms * REDBOLT_MS, from, to, ignored;
  const char *between = "";
  printf("{\"held\":[");
  while (now() < end) {
    if (take(key, ttl_ms, 0, &ignored, &from) != REDBOLT_OK) continue;
    struct timespec pause = {.tv_sec = (time_t)(pause_ms / 1000), .tv_nsec = (long)(pause_ms % 1000) * 1000000};
    nanosleep(&pause, NULL);
    to = now();
    give_back(key, &ignored, &ignored);
    printf("%s[%llu,%llu]", between, (unsigned long long)from, (unsigned long long)to);
    between = ",";
  }
  printf("]}\n");
}

/* Acquires and releases fresh keys, one after the other. */
static void latency(uint64_t time_ms, const char *prefix) {
  uint64_t end = now() + time_ms * REDBOLT_MS, from, to, ignored;
  unsigned failed = 0, number = 0;
  char key[KEY_MAX];
  const char *between = "";
  printf("{\"us\":[");
  while (now() < end) {
    snprintf(key, sizeof key, "%s:%06u", prefix, ++number);
    if (take(key, TTL_NS / REDBOLT_MS, 0, &from, &to) != REDBOLT_OK) {
      failed++;
      continue;
    }
    printf("%s%.3f", between, (double)(to - from) / 1e3);
    between = ",";
    if (give_back(key, &ignored, &ignored) != REDBOLT_OK) failed++;
  }
  printf("],\"failed\":%u}\n", failed);
}

/* A thread that acquires and releases fresh keys until the time is over. */
struct worker {
  pthread_t thread;
  unsigned number;
  uint64_t end;
  const char *prefix;
  uint64_t cycles, failed;
};

static void *work(void *argument) {
  struct worker *worker = argument;
  redbolt_options options = {.ttl_ns = TTL_NS};
  redbolt_lease lease;
  char key[KEY_MAX];
  while (now() < worker->end) {
    int len = snprintf(key, sizeof key, "%s:%u:%06llu", worker->prefix, worker->number,
                       (unsigned long long)worker->cycles);
    int is_done = redbolt_lock(client, key, (size_t)len, &options, &lease, NULL) == REDBOLT_OK &&
                  redbolt_unlock(client, lease, NULL) == REDBOLT_OK;
    if (is_done) worker->cycles++;
    else worker->failed++;
  }
  return NULL;
}

static void say_cycles(uint64_t cycles, uint64_t failed, uint64_t begin) {
  printf("{\"cycles\":%llu,\"failed\":%llu,\"seconds\":%.6f}\n", (unsigned long long)cycles,
         (unsigned long long)failed, (double)(now() - begin) / 1e9);
}

static void threads(uint64_t time_ms, unsigned count, const char *prefix) {
  struct worker *workers = calloc(count, sizeof *workers);
  uint64_t begin = now(), cycles = 0, failed = 0;
  if (workers == NULL) exit(1);
  for (unsigned at = 0; at < count; at++) {
    workers[at] = (struct worker){.number = at, .end = begin + time_ms * REDBOLT_MS, .prefix = prefix};
    if (pthread_create(&workers[at].thread, NULL, work, &workers[at]) != 0) exit(1);
  }
  for (unsigned at = 0; at < count; at++) {
    pthread_join(workers[at].thread, NULL);
    cycles += workers[at].cycles;
    failed += workers[at].failed;
  }
  free(workers);
  say_cycles(cycles, failed, begin);
}

/* Counts the digits at the end of a key up. */
static void count_up(char *key, size_t len) {
  for (size_t at = len - 1; ++key[at] > '9'; at--) key[at] = '0';
}

/* This many locks under way at once, on this thread alone. */
static void loop(uint64_t time_ms, unsigned window, const char *prefix) {
  redbolt_driver *driver;
  redbolt_error error;
  redbolt_options options = {.ttl_ns = TTL_NS};
  redbolt_completion done[64];
  char key[KEY_MAX];
  uint64_t cycles = 0, failed = 0;
  unsigned in_flight = 0;
  size_t len = (size_t)snprintf(key, sizeof key, "%s:%06d", prefix, 0);
  must(redbolt_driver_new(config, &driver, &error), &error);
  /* As the program in Rust does: the servers may need this core. */
  while (!redbolt_driver_is_ready(driver)) {
    redbolt_driver_drive(driver, NULL);
    sched_yield();
  }
  uint64_t begin = now(), end = begin + time_ms * REDBOLT_MS;
  while (in_flight > 0 || now() < end) {
    for (; in_flight < window && now() < end; in_flight++) {
      count_up(key, len);
      must(redbolt_driver_lock(driver, key, len, &options, NULL, NULL, &error), &error);
    }
    redbolt_driver_drive(driver, NULL);
    size_t count = redbolt_driver_completions(driver, done, NULL, 64);
    if (count == 0) sched_yield();
    for (size_t at = 0; at < count; at++) {
      int is_lock = done[at].event == REDBOLT_LOCKED;
      if (done[at].code != REDBOLT_OK) failed++;
      else if (!is_lock) cycles++;
      if (is_lock && done[at].code == REDBOLT_OK)
        must(redbolt_driver_unlock(driver, done[at].lease, NULL, NULL, &error), &error);
      else
        in_flight--;
    }
  }
  say_cycles(cycles, failed, begin);
  redbolt_driver_free(driver);
}

static void answer(char *line) {
  char *words[5] = {0}, *rest = line;
  size_t count = 0;
  for (char *word; count < 5 && (word = strsep(&rest, " \n")) != NULL;)
    if (*word != 0) words[count++] = word;
  uint64_t numbers[5] = {0};
  for (size_t at = 0; at < count; at++) numbers[at] = strtoull(words[at], NULL, 10);
  const char *command = count > 0 ? words[0] : "";
  if (strcmp(command, "try") == 0 && count == 3) try_lock(words[1], numbers[2]);
  else if (strcmp(command, "lock") == 0 && count == 3) lock(words[1], numbers[2]);
  else if (strcmp(command, "unlock") == 0 && count == 2) unlock(words[1]);
  else if (strcmp(command, "extend") == 0 && count == 3) extend(words[1], numbers[2]);
  else if (strcmp(command, "hold") == 0 && count == 5) hold(words[1], numbers[2], numbers[3], numbers[4]);
  else if (strcmp(command, "latency") == 0 && count == 3) latency(numbers[1], words[2]);
  else if (strcmp(command, "cycles") == 0 && count == 4)
    (is_tuned ? loop : threads)(numbers[1], (unsigned)numbers[2], words[3]);
  else printf("{\"error\":\"no such command\"}\n");
  fflush(stdout);
}

int main(int argc, char **argv) {
  const char *nodes[REDBOLT_NODES_MAX];
  size_t count = 0;
  redbolt_error error;
  char *rest = argc == 3 ? argv[1] : NULL;
  for (char *node; count < REDBOLT_NODES_MAX && (node = strsep(&rest, ",")) != NULL;) nodes[count++] = node;
  is_tuned = argc == 3 && strcmp(argv[2], "tuned") == 0;
  must(redbolt_config_new(nodes, count, &config, &error), &error);
  /* The servers have only just started, and have promised nothing before. */
  must(redbolt_config_set(config, REDBOLT_RESTART_GUARD, 0, &error), &error);
  if (is_tuned) must(redbolt_config_set(config, REDBOLT_SPIN_NS, 50000, &error), &error);
  must(redbolt_client_new(config, &client, &error), &error);
  printf("{\"versions\":\"redbolt %s, as a C library\",\"settings\":\"%s\",\"retry_ms\":null}\n", redbolt_version(),
         is_tuned ? "`REDBOLT_SPIN_NS` 50 us; 64 workers: a `redbolt_driver`, 64 under way on one thread"
                  : "`redbolt_client_new`, `redbolt_lock`; 64 workers: 64 threads on one client");
  fflush(stdout);
  char *line = NULL;
  size_t room = 0;
  while (getline(&line, &room, stdin) > 0) answer(line);
  free(line);
  return 0;
}
