#ifndef REDBOLT_H
#define REDBOLT_H

/* Made from ffi/src by cbindgen. Change the sources, then: REDBOLT_UPDATE=1 tests/run c */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// All times here are in nanoseconds.
#define REDBOLT_US UINT64_C(1000)
#define REDBOLT_MS UINT64_C(1000000)
#define REDBOLT_S UINT64_C(1000000000)


// The most nodes that a client can have.
#define REDBOLT_NODES_MAX 32

// The bytes of a message, with the zero at its end. A longer message is cut.
#define REDBOLT_MESSAGE_MAX 1024

// How a call ended. The message of `redbolt_error` says more.
enum redbolt_code
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // The call did what it was asked for.
  REDBOLT_OK = 0,
  // Another client, or another caller of this client, holds the lock. Try again later.
  REDBOLT_TAKEN = 1,
  // Too few nodes could vote or answered in time. Try again; the message names the nodes.
  REDBOLT_NO_QUORUM = 2,
  // The lease is over, or was won with less validity than the call asked for.
  REDBOLT_EXPIRED = 3,
  // The lock is lost: no quorum holds the key any more, or its time is over. Stop the work.
  REDBOLT_LOST = 4,
  // The lock was over before it was unlocked. Another holder may have been at work.
  REDBOLT_NOT_HELD = 5,
  // Too few nodes answered to know whether the lock is free. Its TTL ends it.
  REDBOLT_UNCONFIRMED = 6,
  // The lease may not be extended any further; it goes on until its deadline.
  REDBOLT_LIMIT_REACHED = 7,
  // Another thread is in a call of this driver, or another extension is under way.
  REDBOLT_BUSY = 8,
  // Too many operations are under way. Take their results first.
  REDBOLT_FULL = 9,
  // The client or driver was shut down, or this is the child of a fork.
  REDBOLT_CLOSED = 10,
  // The operation was cancelled.
  REDBOLT_CANCELLED = 11,
  // An argument is null or out of its range. Correct the call.
  REDBOLT_INVALID_ARGUMENT = 12,
  // The lease was unlocked or released, or is another client's.
  REDBOLT_NOT_A_LEASE = 13,
  // The configuration cannot work. The message says which setting.
  REDBOLT_INVALID_CONFIG = 14,
  // The operating system refused what the event loop needs.
  REDBOLT_SYSTEM = 15,
  // The time limit of the wait is over.
  REDBOLT_TIMED_OUT = 16,
  // A fault in the library: please report it. Free the object and make a new one.
  REDBOLT_PANIC = 17,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum redbolt_code redbolt_code;
#else
typedef int32_t redbolt_code;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The settings that are numbers, for `redbolt_config_set`.
enum redbolt_setting
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // How long a node may take to answer.
  REDBOLT_NODE_TIMEOUT_NS = 1,
  // How long a connection may take.
  REDBOLT_CONNECT_TIMEOUT_NS = 2,
  // The longest TTL of all clients of the nodes.
  REDBOLT_MAX_TTL_NS = 3,
  // How many votes a lock needs; more than half of the nodes. The same for all clients.
  REDBOLT_QUORUM = 4,
  // The most that the rates of two clocks may differ, in parts per million.
  REDBOLT_DRIFT_PPM = 5,
  // 0: a restarted node may vote at once. 1, the default: once it has run for the longest TTL.
  REDBOLT_RESTART_GUARD = 6,
  // 0: a master with replicas votes like any other, and two holders are possible after a
  // failover. 1, the default: such a master votes only if it stops granting when it is cut off
  // from its replicas.
  REDBOLT_FAILOVER_GUARD = 7,
  // 0: a node that denies INFO votes, unchecked. 1, the default: it does not vote.
  REDBOLT_STRICT_ADMISSION = 8,
  // How long a call waits for a lock that it does not get; zero tries once.
  REDBOLT_RETRY_TIMEOUT_NS = 9,
  // The shortest wait between two attempts.
  REDBOLT_RETRY_DELAY_NS = 10,
  // The random part of the wait between two attempts is up to this.
  REDBOLT_RETRY_JITTER_NS = 11,
  // 0: no release wakes a call that waits. 1, the default: a release wakes it.
  REDBOLT_DIRECT_WAKE = 12,
  // For how long a caller that waits for answers spins before it sleeps. Zero, the default: not
  // at all. `UINT64_MAX`: it never sleeps.
  REDBOLT_SPIN_NS = 13,
  // How many operations may be under way, 1 to 1048576.
  REDBOLT_IN_FLIGHT_MAX = 14,
  // How often a lease may be extended, 0 to 65535.
  REDBOLT_MAX_EXTENSIONS = 15,
  // For how long a lease may be held in all.
  REDBOLT_MAX_HOLD_NS = 16,
  // How often in a row a lock may go from one caller to another caller of the same client.
  REDBOLT_LOCAL_TURNS = 17,
  // How often in a row a lock may go from one client to another without a free moment, 0 to 255.
  REDBOLT_TRANSFERS_IN_ROW = 18,
  // How far apart the wall clocks of client and nodes may be, for fences.
  REDBOLT_MAX_CLOCK_SKEW_NS = 19,
  // How long nodes keep the counter of a fence.
  REDBOLT_FENCE_TTL_NS = 20,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum redbolt_setting redbolt_setting;
#else
typedef uint32_t redbolt_setting;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The settings that are text, for `redbolt_config_set_text`.
enum redbolt_text_setting
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // The user of nodes whose address has none.
  REDBOLT_USERNAME = 1,
  // The password of nodes whose address has none.
  REDBOLT_PASSWORD = 2,
  // The name by which operators see this client, 1 to 64 letters, digits and .-_+@/
  REDBOLT_CLIENT_NAME = 3,
  // What the nodes have in front of each key; any bytes.
  REDBOLT_KEY_PREFIX = 4,
  // The list that is to replace the nodes: addresses with commas between them. While a program
  // has both lists, a lock needs a quorum of each list.
  REDBOLT_NEXT_NODES = 5,
  // The certificates, as PEM, that sign those of the nodes; without this setting, the system's.
  REDBOLT_TLS_CA = 6,
  // The client's certificate and its chain, as PEM.
  REDBOLT_TLS_CERT = 7,
  // The key of that certificate, as PEM.
  REDBOLT_TLS_KEY = 8,
  // The name in the certificates of all nodes; without it, the host of each address.
  REDBOLT_TLS_SERVER_NAME = 9,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum redbolt_text_setting redbolt_text_setting;
#else
typedef uint32_t redbolt_text_setting;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What one node said, in `votes` of `redbolt_error`.
enum redbolt_vote
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint8_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // The client has no such node.
  REDBOLT_VOTE_NONE = 0,
  // The node wrote the key.
  REDBOLT_VOTE_GRANTED = 1,
  // The node holds the key for another client, or for another caller of this client.
  REDBOLT_VOTE_DENIED = 2,
  // The node wrote nothing, or the client did not ask it; the message says why.
  REDBOLT_VOTE_FAILED = 3,
  // The key may have been written: no clear answer came in time.
  REDBOLT_VOTE_UNKNOWN = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum redbolt_vote redbolt_vote;
#else
typedef uint8_t redbolt_vote;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Bits of `flags` in `redbolt_options`.
enum redbolt_option
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // The client extends the lease while it is held, and reports its loss.
  REDBOLT_KEEP_ALIVE = 1,
  // The lease has a fence: a number above that of every earlier lease of the key.
  REDBOLT_FENCED = 2,
  // The call writes: it takes all slots of `readers`.
  REDBOLT_WRITE = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum redbolt_option redbolt_option;
#else
typedef uint32_t redbolt_option;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What has ended.
enum redbolt_event
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // A call for a lock. If the code is `REDBOLT_OK`, `lease` is the lease.
  REDBOLT_LOCKED = 1,
  // An extension of `lease`.
  REDBOLT_EXTENDED = 2,
  // An unlock. The lease was over from the call on.
  REDBOLT_UNLOCKED = 3,
  // `lease`, which is kept alive, is over: stop the work, then unlock or release it. `user` is that
  // of the call that took the lock.
  REDBOLT_LEASE_LOST = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum redbolt_event redbolt_event;
#else
typedef int32_t redbolt_event;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Locks for threads: one connection per node, and one I/O thread. Any number of threads may use a
// client at the same time. In the child of a fork only `_exit` and `exec` are safe.
typedef struct redbolt_client redbolt_client;

// The nodes and the settings of clients and drivers. Any number of threads may use a
// configuration. The clients and drivers made of it have a copy.
typedef struct redbolt_config redbolt_config;

// Locks for the caller's own loop: a driver has no thread. One thread at a time may use a driver;
// a second thread gets `REDBOLT_BUSY`. In the child of a fork only `_exit` and `exec` are safe.
typedef struct redbolt_driver redbolt_driver;

// Why a call failed, in the caller's memory. Each call that takes an error writes it, even if the
// call succeeds. Pass null if the code is enough: a message costs about a microsecond.
typedef struct {
  // The code that the call returned.
  int32_t code;
  // How many nodes the client has, whether it asked them or not. Zero: the nodes had no part.
  uint32_t nodes;
  // How many votes were needed.
  uint32_t quorum;
  // A `redbolt_vote` per node, in the order of the configuration.
  uint8_t votes[REDBOLT_NODES_MAX];
  // One line of UTF-8 for a person, ended by a zero. It never has a token or a password.
  uint8_t message[REDBOLT_MESSAGE_MAX];
} redbolt_error;

// What one call for a lock asks for. Set `ttl_ns`, and leave the rest zero:
// `redbolt_options options = {.ttl_ns = 10 * REDBOLT_S};`
typedef struct {
  // Each node drops the lock this long after it granted the lock. From 4 ms (with the default
  // drift) to the configured longest TTL; whole milliseconds, rounded down.
  uint64_t ttl_ns;
  // A call that waits ends after this, or after `REDBOLT_RETRY_TIMEOUT_NS` (10 s by default) if
  // that is less. Zero: `REDBOLT_RETRY_TIMEOUT_NS` alone.
  uint64_t timeout_ns;
  // The call releases a lease with less left than this, and tries again or fails.
  uint64_t min_validity_ns;
  // For a client: how long an unlocked lock may stay with the client for its next call.
  uint64_t linger_ns;
  // How many callers may hold the lock at the same time, 1 to 63. Zero means one caller.
  uint32_t slots;
  // For a lock with readers: how many may read at once, 1 to 63. The call reads, or writes with
  // `REDBOLT_WRITE`.
  uint32_t readers;
  // Bits of `redbolt_option`.
  uint32_t flags;
} redbolt_options;

// A lock that is held, as its holder knows it: a number, which is safe to copy and to keep. A call
// with a lease that was unlocked or released, or is another client's, ends with
// `REDBOLT_NOT_A_LEASE`. All zeros is no lease.
typedef struct {
  // For the library alone.
  uint64_t serial;
  // For the library alone.
  uint64_t place;
} redbolt_lease;

// A key: any bytes, 1 to 4096.
typedef struct {
  // The first byte.
  const char *data;
  // How many bytes.
  size_t len;
} redbolt_key;

// A lease as it is now. Check `remaining_ns` right before each effect that needs the lock.
typedef struct {
  // The end of the lease, on the clock of `redbolt_now_ns`.
  uint64_t deadline_ns;
  // How long the lock is still certainly held. Zero: it is over.
  uint64_t remaining_ns;
  // The fence of the first key, in the order of the bytes; zero if the call asked for none.
  uint64_t fence;
  // The nodes that granted the lock: bit 0 is the first of the configuration.
  uint32_t votes;
  // The slot of the lock, from 0; -1 for a lock without slots, and for a writer, which has all
  // slots.
  int32_t slot;
  // Whether the client knows that the lock is over.
  bool is_lost;
} redbolt_lease_info;

// The name of an operation, for `redbolt_driver_cancel`: a number, which is safe to copy and to
// keep.
typedef struct {
  // For the library alone.
  uint64_t serial;
  // For the library alone.
  uint64_t place;
} redbolt_op;

// How an operation ended.
typedef struct {
  // What has ended: a `redbolt_event`.
  int32_t event;
  // How it ended: a `redbolt_code`.
  int32_t code;
  // The caller's own pointer, as the call had it. The library never follows it.
  void *user;
  // The lease; all zeros if there is none.
  redbolt_lease lease;
} redbolt_completion;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Makes a client. Blocks until a quorum of nodes may vote, at most for the connect timeout. Then
// the call waits for the other nodes, at most for the node timeout. The caller frees it.
redbolt_code redbolt_client_new(const redbolt_config *config,
                                redbolt_client **client,
                                redbolt_error *error);

// Frees a client, and releases its leases without waiting for the nodes. A call with null does
// nothing. No other thread may be in a call of the client.
void redbolt_client_free(redbolt_client *client);

// Ends all calls with `REDBOLT_CLOSED`, but a `redbolt_wait_lost` with `REDBOLT_LOST`. Sends the
// releases that the client owes, for at most `limit_ns`. `owed`, which may be null, gets how many
// releases the nodes have not confirmed. The keys of those releases end with their TTL.
redbolt_code redbolt_client_shutdown(redbolt_client *client,
                                     uint64_t limit_ns,
                                     uint64_t *owed,
                                     redbolt_error *error);

// Takes the lock of a key, 1 to 4096 bytes. Waits for it until the timeout of the options.
redbolt_code redbolt_lock(redbolt_client *client,
                          const char *key,
                          size_t key_len,
                          const redbolt_options *options,
                          redbolt_lease *lease,
                          redbolt_error *error);

// As `redbolt_lock`, but tries once. Each round trip takes at most the timeout of a node. A fence,
// slots or several keys may need more than one. Before a quorum is connected, the call takes at most
// the timeout of a connection.
redbolt_code redbolt_try_lock(redbolt_client *client,
                              const char *key,
                              size_t key_len,
                              const redbolt_options *options,
                              redbolt_lease *lease,
                              redbolt_error *error);

// Takes the locks of 1 to 64 keys under one lease, all or none. Waits as `redbolt_lock` does.
redbolt_code redbolt_lock_all(redbolt_client *client,
                              const redbolt_key *first,
                              size_t count,
                              const redbolt_options *options,
                              redbolt_lease *lease,
                              redbolt_error *error);

// As `redbolt_lock_all`, but tries once.
redbolt_code redbolt_try_lock_all(redbolt_client *client,
                                  const redbolt_key *first,
                                  size_t count,
                                  const redbolt_options *options,
                                  redbolt_lease *lease,
                                  redbolt_error *error);

// Moves the end of the lease to `ttl_ns` from now. One round trip, at most the timeout of a node.
// `REDBOLT_LOST` and `REDBOLT_EXPIRED`: stop the work. `REDBOLT_NO_QUORUM`: try again until the
// deadline. Other threads that read this lease wait meanwhile.
redbolt_code redbolt_extend(redbolt_client *client,
                            redbolt_lease lease,
                            uint64_t ttl_ns,
                            redbolt_error *error);

// Releases the lock, and waits until a quorum has confirmed that: one round trip, at most the
// timeout of a node. The lease is over, whatever the code is. `REDBOLT_NOT_HELD`: it was over
// before. `REDBOLT_UNCONFIRMED`: the TTL may have to end it.
redbolt_code redbolt_unlock(redbolt_client *client, redbolt_lease lease, redbolt_error *error);

// Releases the lock without waiting for the nodes.
redbolt_code redbolt_release(redbolt_client *client, redbolt_lease lease, redbolt_error *error);

// How long the lock is still certainly held, in nanoseconds; zero if the lock is over, or if
// `lease` is no lease.
uint64_t redbolt_remaining_ns(redbolt_client *client, redbolt_lease lease);

// Writes what is known of the lease.
redbolt_code redbolt_lease_state(redbolt_client *client,
                                 redbolt_lease lease,
                                 redbolt_lease_info *info,
                                 redbolt_error *error);

// Waits until the lock is over, for at most `limit_ns`: `REDBOLT_LOST`, or `REDBOLT_TIMED_OUT`. A
// shutdown of the client also ends the call with `REDBOLT_LOST`. For a lock that is kept alive,
// the call returns as soon as the client knows of the loss. Meanwhile other threads may extend and
// unlock the lease. After an unlock the call ends with `REDBOLT_NOT_A_LEASE`.
redbolt_code redbolt_wait_lost(redbolt_client *client,
                               redbolt_lease lease,
                               uint64_t limit_ns,
                               redbolt_error *error);

// The name of a code, such as "REDBOLT_TAKEN"; static text, for a log line.
const char *redbolt_code_name(int32_t code);

// Makes a configuration of `count` node addresses, 1 to 32, such as "redis://10.0.0.1:6379". The
// caller frees it.
redbolt_code redbolt_config_new(const char *const *nodes,
                                size_t count,
                                redbolt_config **config,
                                redbolt_error *error);

// Sets a number: a `redbolt_setting`. The call refuses a value that the setting cannot hold, such
// as 2 for a switch. The client or driver made of the configuration checks the range.
redbolt_code redbolt_config_set(redbolt_config *config,
                                uint32_t setting,
                                uint64_t value,
                                redbolt_error *error);

// Sets a text of `len` bytes: a `redbolt_text_setting`.
redbolt_code redbolt_config_set_text(redbolt_config *config,
                                     uint32_t setting,
                                     const char *text,
                                     size_t len,
                                     redbolt_error *error);

// Frees a configuration. A call with null does nothing.
void redbolt_config_free(redbolt_config *config);

// Makes a driver. It does not block: the first `redbolt_driver_drive` begins to connect. The caller
// frees it.
redbolt_code redbolt_driver_new(const redbolt_config *config,
                                redbolt_driver **driver,
                                redbolt_error *error);

// Frees a driver, and writes the releases of its leases as far as that does not block. A call with
// null does nothing.
void redbolt_driver_free(redbolt_driver *driver);

// The one descriptor to watch for reading, while the driver lives. Do not read from it or close
// it. -1: `driver` is null, the driver had a fault, another thread is in a call of it, or this is
// the child of a fork.
int redbolt_driver_fd(redbolt_driver *driver);

// After how many nanoseconds to drive even if the descriptor is silent: 0 is now, -1 is never. It is
// 0 wherever `redbolt_driver_drive` would fail, so that the loop drives and learns of it. Ask again
// after each call of the driver.
int64_t redbolt_driver_timeout_ns(redbolt_driver *driver);

// Reads all answers, handles what is due, and writes what was submitted. Never blocks. Call it when
// the descriptor is readable, when the timeout is over, and after submissions.
redbolt_code redbolt_driver_drive(redbolt_driver *driver, redbolt_error *error);

// Writes what was submitted, at once, and does nothing else.
redbolt_code redbolt_driver_flush(redbolt_driver *driver, redbolt_error *error);

// Whether a quorum of nodes may vote. A lock that is submitted earlier waits until then.
bool redbolt_driver_is_ready(redbolt_driver *driver);

// Submits a call for the lock of a key, which waits until the timeout of the options. `user` comes
// back with the completion. `op`, which may be null, gets the operation.
redbolt_code redbolt_driver_lock(redbolt_driver *driver,
                                 const char *key,
                                 size_t key_len,
                                 const redbolt_options *options,
                                 void *user,
                                 redbolt_op *op,
                                 redbolt_error *error);

// As `redbolt_driver_lock`, but tries once.
redbolt_code redbolt_driver_try_lock(redbolt_driver *driver,
                                     const char *key,
                                     size_t key_len,
                                     const redbolt_options *options,
                                     void *user,
                                     redbolt_op *op,
                                     redbolt_error *error);

// Submits a call for the locks of 1 to 64 keys under one lease, all or none.
redbolt_code redbolt_driver_lock_all(redbolt_driver *driver,
                                     const redbolt_key *first,
                                     size_t count,
                                     const redbolt_options *options,
                                     void *user,
                                     redbolt_op *op,
                                     redbolt_error *error);

// As `redbolt_driver_lock_all`, but tries once.
redbolt_code redbolt_driver_try_lock_all(redbolt_driver *driver,
                                         const redbolt_key *first,
                                         size_t count,
                                         const redbolt_options *options,
                                         void *user,
                                         redbolt_op *op,
                                         redbolt_error *error);

// Submits an extension of a lease to `ttl_ns` from now.
redbolt_code redbolt_driver_extend(redbolt_driver *driver,
                                   redbolt_lease lease,
                                   uint64_t ttl_ns,
                                   void *user,
                                   redbolt_op *op,
                                   redbolt_error *error);

// Submits the release of a lock. The lease is over from now on, unless the code is `REDBOLT_BUSY`.
redbolt_code redbolt_driver_unlock(redbolt_driver *driver,
                                   redbolt_lease lease,
                                   void *user,
                                   redbolt_op *op,
                                   redbolt_error *error);

// Releases a lock without a completion; the next `redbolt_driver_drive` writes it.
redbolt_code redbolt_driver_release(redbolt_driver *driver,
                                    redbolt_lease lease,
                                    redbolt_error *error);

// Cancels a call for a lock. It still completes, with `REDBOLT_CANCELLED`, or as it ended before.
// `REDBOLT_INVALID_ARGUMENT`: its completion was taken already, or `op` is no operation.
redbolt_code redbolt_driver_cancel(redbolt_driver *driver, redbolt_op op, redbolt_error *error);

// Takes up to `room` completions into the caller's array, and returns how many. `errors`, which may be
// null, is an array of the same length for their messages and votes.
size_t redbolt_driver_completions(redbolt_driver *driver,
                                  redbolt_completion *completions,
                                  redbolt_error *errors,
                                  size_t room);

// How long the lock is still certainly held, in nanoseconds; zero if the lock is over, or if
// `lease` is no lease.
uint64_t redbolt_driver_remaining_ns(redbolt_driver *driver, redbolt_lease lease);

// Writes what is known of the lease.
redbolt_code redbolt_driver_lease_state(redbolt_driver *driver,
                                        redbolt_lease lease,
                                        redbolt_lease_info *info,
                                        redbolt_error *error);

// Blocks: sends the releases that are owed, for at most `limit_ns`. `owed`, which may be null, gets how
// many the nodes have not confirmed: those end with their TTL. Operations whose completion was not taken
// complete with `REDBOLT_CLOSED`, and later calls for locks return it. A lease that is still held can
// be extended and released.
redbolt_code redbolt_driver_shutdown(redbolt_driver *driver,
                                     uint64_t limit_ns,
                                     uint64_t *owed,
                                     redbolt_error *error);

// Nanoseconds on the clock of all deadlines here. It goes on while the machine is suspended
// (`CLOCK_BOOTTIME` on Linux).
uint64_t redbolt_now_ns(void);

// The version of the library, such as "0.1.0"; static text.
const char *redbolt_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* REDBOLT_H */
