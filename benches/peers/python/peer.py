"""pottery or redlock-py behind the line protocol; see benches/peers/README.md."""

import json
import sys
import threading
import time
from importlib.metadata import version

CLIENT, NODES, TUNED = sys.argv[1], sys.argv[2].split(","), sys.argv[3:] == ["tuned"]
if not TUNED:
    # What `pip install` of the client alone brings: redis-py without its parser in C.
    sys.modules["hiredis"] = None

import pottery  # noqa: E402
import redis  # noqa: E402
import redlock  # noqa: E402

# The TTL of what is measured, in milliseconds.
TTL = 10_000
# When a node without an answer is given up, where the settings are tuned, in seconds.
TIMEOUT = {}
if TUNED:
    # redis-py itself would try again for seconds.
    once = redis.retry.Retry(redis.backoff.NoBackoff(), 0)
    TIMEOUT = {"socket_timeout": 0.05, "socket_connect_timeout": 0.05, "retry": once}
RETRY = 0.005

now = time.monotonic_ns


class Pottery:
    """A new `Redlock` for each lock, as its README advises."""

    def __init__(self):
        urls = [f"redis://{node}/0" for node in NODES]
        self.masters = frozenset(redis.Redis.from_url(url, **TIMEOUT) for url in urls)

    def settings(self):
        if TUNED:
            return "`socket_timeout` 50 ms, no `retry`, hiredis, `acquire(blocking=False)` each 5 ms"
        return "`Redlock(key=.., masters=..)`, `acquire()`, as its README"

    def attempt(self, key, ttl):
        lock = pottery.Redlock(key=key, masters=self.masters, auto_release_time=ttl / 1000)
        return lock if lock.acquire(blocking=False) else None

    def lock(self, key, ttl):
        lock = pottery.Redlock(key=key, masters=self.masters, auto_release_time=ttl / 1000)
        if TUNED:
            while not lock.acquire(blocking=False):
                time.sleep(RETRY)
        else:
            lock.acquire()
        return lock

    def unlock(self, lock):
        try:
            lock.release()
        except pottery.ReleaseUnlockedLock:
            return False
        return True

    def extend(self, lock, _):
        # Its TTL is the lock's own.
        try:
            lock.extend()
        except pottery.ExtendUnlockedLock:
            return False
        return True


class RedlockPy:
    """One manager, as its README has it."""

    def __init__(self):
        hosts = [node.split(":") for node in NODES]
        self.nodes = [{"host": host, "port": int(port), "db": 0, **TIMEOUT} for host, port in hosts]
        retry = {"retry_count": 1000, "retry_delay": RETRY} if TUNED else {}
        self.manager = redlock.Redlock(self.nodes, **retry)
        self.once = redlock.Redlock(self.nodes, retry_count=1, retry_delay=0.001)

    def settings(self):
        if TUNED:
            return "`socket_timeout` 50 ms, no `retry`, hiredis, `retry_count` 1000, `retry_delay` 5 ms"
        return "`Redlock([{host, port, db}, ..])`, as its README"

    def attempt(self, key, ttl):
        return self.once.lock(key, ttl) or None

    def lock(self, key, ttl):
        # It gives up after its retries, its users call it again.
        while not (lock := self.manager.lock(key, ttl)):
            pass
        return lock

    def unlock(self, lock):
        self.manager.unlock(lock)
        # It does not say.
        return True

    def extend(self, _, __):
        return None


CLIENTS = {"pottery": Pottery, "redlock-py": RedlockPy}
client = CLIENTS[CLIENT]()
held = {}


def hold(key, ttl, pause, duration):
    end = now() + duration * 1_000_000
    spans = []
    while now() < end:
        lock = client.lock(key, ttl)
        begin = now()
        time.sleep(pause / 1000)
        spans.append((begin, now()))
        client.unlock(lock)
    return {"held": spans}


def latency(duration, prefix):
    end = now() + duration * 1_000_000
    us, failed, number = [], 0, 0
    while now() < end:
        number += 1
        key = f"{prefix}:{number:06}"
        begin = now()
        try:
            lock = client.lock(key, TTL)
        except Exception:
            failed += 1
            continue
        us.append((now() - begin) / 1e3)
        failed += not client.unlock(lock)
    return {"us": us, "failed": failed}


def cycles(duration, workers, prefix):
    begin = now()
    end = begin + duration * 1_000_000
    done, failed = [0] * workers, [0] * workers

    def work(worker):
        while now() < end:
            try:
                lock = client.lock(f"{prefix}:{worker}:{done[worker]:06}", TTL)
                done[worker] += client.unlock(lock)
            except Exception:
                failed[worker] += 1

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"cycles": sum(done), "failed": sum(failed), "seconds": (now() - begin) / 1e9}


def answer(name, words):
    if name == "try":
        lock = client.attempt(words[0], int(words[1]))
        if lock:
            held[words[0]] = lock
        return {"won": bool(lock)}
    if name == "lock":
        begin = now()
        lock = client.lock(words[0], int(words[1]))
        end = now()
        held[words[0]] = lock
        return {"from": begin, "to": end}
    if name == "unlock":
        lock = held.pop(words[0])
        begin = now()
        was_held = client.unlock(lock)
        return {"from": begin, "to": now(), "held": was_held}
    if name == "extend":
        return {"held": client.extend(held[words[0]], int(words[1]))}
    if name == "hold":
        return hold(words[0], *map(int, words[1:]))
    if name == "latency":
        return latency(int(words[0]), words[1])
    if name == "cycles":
        return cycles(int(words[0]), int(words[1]), words[2])
    raise ValueError("no such command")


def say(reply):
    print(json.dumps(reply), flush=True)


python = ".".join(map(str, sys.version_info[:3]))
say(
    {
        "versions": f"{CLIENT} {version(CLIENT)}, redis-py {version('redis')}, python {python}",
        "settings": client.settings(),
        # Without settings, pottery's delay is random up to this, redlock-py's is this.
        "retry_ms": RETRY * 1000 if TUNED else 200,
    }
)
for line in sys.stdin:
    name, *words = line.split()
    try:
        say(answer(name, words))
    except Exception as error:
        say({"error": f"{type(error).__name__}: {error}"})
