"""The locks of pottery, redlock-py and aioredlock, and Redbolt's, exclude each other on the same keys."""

from __future__ import annotations

import asyncio
import importlib
import threading
import time
import warnings
from typing import Any, Callable

import pytest
from conftest import SETTINGS, Servers

import redbolt

# A loser of another library may leave its keys for this long, which is less than the wait for empty servers.
TTL = 10.0


def module(name: str) -> Any:
    """A client that this Python may be too new for."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(name)
    except Exception as error:
        pytest.skip(f"SKIPPED {name}: {error}")


class Pottery:
    """Puts `redlock:` in front of every key."""

    prefix = "redlock:"

    def __init__(self, servers: Servers) -> None:
        pottery, redis = module("pottery"), module("redis")
        self._masters = frozenset(redis.Redis.from_url(server.url) for server in servers)
        self._kind = pottery.Redlock

    def try_lock(self, key: str) -> Any:
        lock = self._kind(key=key, masters=self._masters, auto_release_time=TTL)
        return lock if lock.acquire(blocking=False) else None

    def unlock(self, lock: Any) -> None:
        lock.release()

    def end(self) -> None:
        for master in self._masters:
            master.close()


class RedlockPy:
    prefix = ""

    def __init__(self, servers: Servers) -> None:
        nodes = [{"host": "127.0.0.1", "port": server.port} for server in servers]
        self._manager = module("redlock").Redlock(nodes, retry_count=1, retry_delay=0.001)

    def try_lock(self, key: str) -> Any:
        return self._manager.lock(key, int(TTL * 1000)) or None

    def unlock(self, lock: Any) -> None:
        self._manager.unlock(lock)

    def end(self) -> None:
        for server in self._manager.servers:
            server.close()


class Aioredlock:
    """Runs in an event loop of its own thread."""

    prefix = ""

    def __init__(self, servers: Servers) -> None:
        aioredlock = module("aioredlock")
        self._refused = aioredlock.LockError
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        nodes = [server.url for server in servers]

        async def make() -> Any:
            return aioredlock.Aioredlock(nodes, retry_count=1, retry_delay_min=0.001, retry_delay_max=0.002)

        self._manager = self._run(make())

    def _run(self, main: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(main, self._loop).result(30)

    def try_lock(self, key: str) -> Any:
        try:
            return self._run(self._manager.lock(key, lock_timeout=TTL))
        except self._refused:
            return None

    def unlock(self, lock: Any) -> None:
        self._run(self._manager.unlock(lock))

    def end(self) -> None:
        self._run(self._manager.destroy())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class RedisPy:
    """The lock of redis-py, on one server."""

    prefix = ""
    count = 1

    def __init__(self, servers: Servers) -> None:
        self._server = module("redis").Redis.from_url(servers[0].url)

    def try_lock(self, key: str) -> Any:
        lock = self._server.lock(key, timeout=TTL, thread_local=False)
        return lock if lock.acquire(blocking=False) else None

    def unlock(self, lock: Any) -> None:
        lock.release()

    def end(self) -> None:
        self._server.close()


@pytest.fixture
def shared(servers: Servers, kind: Any) -> Servers:
    """The servers on which both clients lock."""
    return Servers(servers[: getattr(kind, "count", 5)])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [Pottery, RedlockPy, Aioredlock, RedisPy])
class TestBeside:
    def test_neither_wins_a_lock_that_the_other_holds(self, shared: Servers, kind: Callable[[Servers], Any]) -> None:
        with redbolt.Client(shared.urls, **SETTINGS) as client:
            other = kind(shared)
            try:
                for key in ("stock", "shelf:7"):
                    with client.lock(other.prefix + key, ttl=TTL):
                        assert other.try_lock(key) is None
                    # A loser's own deletes may come late.
                    ends = time.monotonic() + 20
                    while (lock := other.try_lock(key)) is None and time.monotonic() < ends:
                        time.sleep(0.01)
                    assert lock is not None
                    with pytest.raises(redbolt.Taken):
                        client.try_lock(other.prefix + key, ttl=TTL)
                    other.unlock(lock)
                    with client.lock(other.prefix + key, ttl=TTL, timeout=20):
                        pass
            finally:
                other.end()
        assert shared.are_empty()

    def test_of_both_kinds_one_at_a_time_is_inside(self, shared: Servers, kind: Callable[[Servers], Any]) -> None:
        inside: list[str] = []
        turns = {"redbolt": 0, "other": 0}
        faults: list[str] = []
        stop = threading.Event()

        def enter(name: str) -> None:
            inside.append(name)
            if len(inside) != 1:
                faults.append(f"inside: {inside}")
            time.sleep(0.001)
            turns[name] += 1
            inside.remove(name)

        def of_redbolt() -> None:
            with redbolt.Client(shared.urls, **SETTINGS) as client:
                while not stop.is_set():
                    try:
                        with client.lock(other.prefix + "shared", ttl=TTL, timeout=5):
                            enter("redbolt")
                    except redbolt.Error:
                        pass
                    time.sleep(0.002)

        def of_other() -> None:
            while not stop.is_set():
                lock = other.try_lock("shared")
                if lock is not None:
                    enter("other")
                    other.unlock(lock)
                time.sleep(0.001)

        other = kind(shared)
        threads = [threading.Thread(target=work) for work in (of_redbolt, of_redbolt, of_other)]
        for thread in threads:
            thread.start()
        ends = time.monotonic() + 30
        while min(turns.values()) < 20 and not faults and time.monotonic() < ends:
            time.sleep(0.01)
        stop.set()
        for thread in threads:
            thread.join()
        other.end()
        assert faults == [] and min(turns.values()) >= 20, (faults, turns)
