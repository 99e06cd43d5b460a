"""Servers that fork their workers: a client may be made before, and each worker connects anew."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
from typing import Any, Callable

import pytest
from conftest import SETTINGS, Servers

import redbolt
import redbolt.asyncio

# Python warns of forks beside threads; these tests are about them.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def in_child(work: Callable[[], Any]) -> Any:
    """What `work` returns in a child of this process, which ends as servers end their workers."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            sender.send(work())
        except BaseException as error:
            sender.send(error)
        finally:
            os._exit(0)
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        return "the child ended without a word"
    finally:
        receiver.close()
        os.waitpid(child, 0)


def take(client: redbolt.Client) -> str:
    with client.lock("k", ttl=10, timeout=20) as lease:
        return f"held: {not lease.lost}"


def test_a_client_that_was_not_used_before_the_fork_serves_each_worker(servers: Servers) -> None:
    client = redbolt.Client(servers.urls, **SETTINGS)
    for _ in range(3):
        assert in_child(lambda: take(client)) == "held: True"
    assert take(client) == "held: True"
    assert servers.are_empty()


def test_a_client_that_is_in_use_at_the_fork_connects_anew_in_the_child(servers: Servers) -> None:
    client = redbolt.Client(servers.urls, **SETTINGS)
    stop = threading.Event()

    def work(key: str) -> None:
        while not stop.is_set():
            client.lock(key, ttl=10).unlock()

    threads = [threading.Thread(target=work, args=(f"busy:{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(30):
            assert in_child(lambda: take(client)) == "held: True"
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    client.shutdown()
    assert servers.are_empty()


def test_a_child_neither_holds_nor_ends_a_lock_of_its_parent(servers: Servers) -> None:
    client = redbolt.Client(servers.urls, **SETTINGS)
    lease = client.lock("k", ttl=30)

    def work() -> list[object]:
        seen: list[object] = [lease.remaining(), lease.lost]
        for call in (lease.unlock, lambda: lease.extend(30), lambda: client.try_lock("k", ttl=10)):
            try:
                seen.append(call())
            except redbolt.Error as error:
                seen.append(type(error).__name__)
        with lease:
            pass
        return seen

    assert in_child(work) == [0.0, True, "Closed", "Closed", "Taken"]
    assert not lease.lost and len({server.ask("GET", "k") for server in servers} - {b"$-1"}) == 1
    assert lease.unlock() is True
    assert servers.are_empty()


def test_the_tokens_of_parent_and_child_differ(servers: Servers) -> None:
    client = redbolt.Client(servers.urls, **SETTINGS)
    client.lock("warm", ttl=10).unlock()

    def token() -> bytes:
        with client.lock("k", ttl=10):
            return next(value for value in (server.ask("GET", "k") for server in servers) if value != b"$-1")

    assert in_child(token) != token()


def test_a_client_of_tasks_serves_the_loops_of_parent_and_child(servers: Servers) -> None:
    client = redbolt.asyncio.Client(servers.urls, **SETTINGS)

    async def main() -> str:
        async with client.lock("k", ttl=10, timeout=20) as lease:
            return f"held: {not lease.lost}"

    assert in_child(lambda: asyncio.run(main())) == "held: True"
    assert asyncio.run(main()) == "held: True"
    assert in_child(lambda: asyncio.run(main())) == "held: True"

    async def forks() -> None:
        lease = await client.lock("held", ttl=30)

        def work() -> list[object]:
            seen: list[object] = [lease.lost]
            try:
                lease.unlock()
            except redbolt.Error as error:
                seen.append(type(error).__name__)
            return seen

        assert in_child(work) == [True, "Closed"]
        assert not lease.lost and await lease.unlock() is True

    asyncio.run(forks())
    assert servers.are_empty()


def of_pool(urls: list[str], number: int) -> int:
    # As a module of a Celery task or a Django view has it: one client per process, made once.
    global _client
    if "_client" not in globals():
        _client = redbolt.Client(urls, restart_guard=False, node_timeout=1.0)
    with _client.lock("counter", ttl=30, timeout=60):
        return number


_client: redbolt.Client


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_pool_exclude_each_other(servers: Servers, method: str) -> None:
    with multiprocessing.get_context(method).Pool(3) as pool:
        done = pool.starmap(of_pool, [(servers.urls, number) for number in range(30)])
        pool.close()
        pool.join()
    assert done == list(range(30))
    assert servers.are_empty()


def test_the_end_of_a_child_ends_no_connection_of_its_parent(servers: Servers) -> None:
    client = redbolt.Client(servers.urls, **SETTINGS)
    lease = client.lock("k", ttl=30, keep_alive=True)
    for _ in range(3):
        assert in_child(lambda: take_other(client)) == "held: True"
    assert lease.remaining() > 10 and not lease.lost
    lease.unlock()


def take_other(client: redbolt.Client) -> str:
    with client.lock("other", ttl=10) as lease:
        return f"held: {not lease.lost}"
