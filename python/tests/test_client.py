"""Locks for threads, on real servers."""

from __future__ import annotations

import gc
import math
import os
import signal
import subprocess
import sys
import threading
import time
from importlib import metadata
from pathlib import Path

import pytest
from conftest import SETTINGS, Servers, eventually

import redbolt


def test_the_module_has_the_version_of_the_package() -> None:
    assert redbolt.__version__ == metadata.version("redbolt")


def test_a_lock_is_held_within_its_block_and_free_behind_it(servers: Servers) -> None:
    with redbolt.Client(servers.urls, **SETTINGS) as client:
        with client.lock("sku:42", ttl=10) as lease:
            assert 9 < lease.remaining() < 10 and not lease.lost
            assert lease.keys == (b"sku:42",) and lease.fence is None and lease.slot is None
            with pytest.raises(redbolt.Taken) as taken:
                client.try_lock("sku:42", ttl=10)
            # The client itself knows the holder, so it asks no node.
            assert len(taken.value.votes) == 5
            lease.extend(20)
            assert 19 < lease.remaining() < 20
        assert lease.lost and lease.remaining() == 0.0
        assert servers.are_empty()
        with pytest.raises(redbolt.NotHeld):
            lease.unlock()


def test_the_votes_say_which_nodes_hold_the_key_for_another_client(servers: Servers) -> None:
    with redbolt.Client(servers.urls, **SETTINGS) as one, redbolt.Client(servers.urls, **SETTINGS) as other:
        lease = one.lock("k", ttl=10)
        with pytest.raises(redbolt.Taken) as taken:
            other.try_lock("k", ttl=10)
        answers = [answer for _, answer in taken.value.votes]
        assert "held" in answers
        assert [node for node, _ in taken.value.votes] == [f"127.0.0.1:{server.port}" for server in servers]
        waiter: list[float] = []

        def wait() -> None:
            with other.lock("k", ttl=10, timeout=20) as its:
                waiter.append(its.remaining())

        thread = threading.Thread(target=wait)
        thread.start()
        assert not eventually(lambda: bool(waiter), limit=0.2)
        assert lease.unlock() is True
        thread.join()
        assert waiter and waiter[0] > 5


def test_a_call_that_waits_ends_by_its_own_timeout(servers: Servers) -> None:
    with redbolt.Client(servers.urls, **SETTINGS, retry_timeout=0.2) as client:
        lease = client.lock("k", ttl=30)
        for timeout in (None, 0.3, 0):
            with pytest.raises(redbolt.Taken):
                client.lock("k", ttl=10, timeout=timeout)
        threading.Timer(0.1, lease.unlock).start()
        with client.lock("k", ttl=10, timeout=math.inf) as lease:
            assert not lease.lost


def test_several_keys_slots_readers_and_fences(servers: Servers) -> None:
    with redbolt.Client(servers.urls, **SETTINGS, key_prefix="app:") as client:
        with client.lock(["b", b"a"], ttl=10) as both:
            assert both.keys == (b"a", b"b")
            with pytest.raises(redbolt.Taken):
                client.try_lock("b", ttl=10)
        slots = [client.lock("licence", ttl=10, slots=2) for _ in range(2)]
        assert {lease.slot for lease in slots} == {0, 1}
        with pytest.raises(redbolt.Taken):
            client.try_lock("licence", ttl=10, slots=2)
        reader = client.lock("prices", ttl=10, read=3)
        with pytest.raises(redbolt.Taken):
            client.try_lock("prices", ttl=10, write=3)
        reader.unlock()
        with client.lock("prices", ttl=10, write=3):
            pass


def test_each_holder_has_a_higher_fence(servers: Servers) -> None:
    with redbolt.Client(servers.urls, node_timeout=1.0, max_ttl=8.0) as client:
        # Fences need the restart guard, which is on: the servers have just started.
        client.ready(timeout=30)
        fences = []
        for _ in range(3):
            with client.lock("account", ttl=5, fenced=True) as lease:
                fences.append(lease.fence)
                assert lease.fence_of("account") == lease.fence
        assert None not in fences and fences == sorted(set(fences))


def test_one_frozen_and_one_killed_server_stop_no_lock(servers: Servers) -> None:
    with redbolt.Client(servers.urls, restart_guard=False, node_timeout=0.5) as client:
        client.lock("k", ttl=10).unlock()
        servers[1].freeze()
        servers[3].kill()
        for _ in range(20):
            with client.lock("k", ttl=10) as lease:
                assert lease.remaining() > 5
        servers[4].kill()
        # The first call may still count on the connection.
        with pytest.raises(redbolt.NoQuorum) as none:
            for _ in range(3):
                client.lock("k", ttl=10, timeout=1.0).unlock()
        answers = dict(none.value.votes)
        assert answers[f"127.0.0.1:{servers[3].port}"] != "granted"
        servers[1].thaw()
        with client.lock("k", ttl=10, timeout=20):
            pass
        running = Servers(server for server in servers if server.process.poll() is None)
        assert running.are_empty()


def test_a_lock_that_is_kept_alive_outlives_its_ttl_and_one_that_is_deleted_is_lost(servers: Servers) -> None:
    with redbolt.Client(servers.urls, **SETTINGS) as client:
        lease = client.lock("k", ttl=2.0, keep_alive=True)
        time.sleep(2.5)
        assert not lease.lost and lease.remaining() > 0.5
        for server in servers:
            server.ask("DEL", "k")
        assert eventually(lambda: lease.lost, limit=3)
        with pytest.raises(redbolt.NotHeld):
            lease.unlock()


def test_a_block_that_overran_its_lease_raises_and_an_exception_of_its_own_comes_first(servers: Servers) -> None:
    with redbolt.Client(servers.urls, **SETTINGS) as client:
        # A busy machine may need a while for a lock, which must not end before the block begins.
        with pytest.raises(redbolt.Lost):
            with client.lock("k", ttl=0.5) as lease:
                assert eventually(lambda: lease.lost)
        with pytest.raises(KeyError):
            with client.lock("k", ttl=0.5) as lease:
                assert eventually(lambda: lease.lost)
                raise KeyError("of the work")
        with pytest.raises(redbolt.Expired):
            client.try_lock("k", ttl=1, min_validity=0.999)


def test_a_lease_that_nothing_refers_to_is_released(servers: Servers) -> None:
    with redbolt.Client(servers.urls, **SETTINGS) as client:
        client.lock("k", ttl=60)
        gc.collect()
        assert servers.are_empty()


def test_fifty_threads_of_a_hundred_increments_lose_none(servers: Servers) -> None:
    counter = 0

    def work() -> None:
        nonlocal counter
        for _ in range(20):
            with client.lock("counter", ttl=30, timeout=60):
                seen = counter
                time.sleep(0)
                counter = seen + 1

    with redbolt.Client(servers.urls, **SETTINGS) as client:
        threads = [threading.Thread(target=work) for _ in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert counter == 1000
        assert servers.are_empty()


def test_other_threads_run_while_one_waits(servers: Servers) -> None:
    with redbolt.Client(servers.urls, **SETTINGS) as client:
        held = client.lock("k", ttl=30)
        waits = threading.Thread(target=lambda: client.lock("k", ttl=30, timeout=60).unlock())
        waits.start()
        turns = 0
        begin = time.monotonic()
        while time.monotonic() < begin + 0.3 or turns <= 1000:
            turns += 1
        assert time.monotonic() < begin + 20 and waits.is_alive()
        held.unlock()
        waits.join()


def test_ctrl_c_ends_a_wait_and_leaves_nothing_behind(servers: Servers) -> None:
    program = """
import sys, redbolt
client = redbolt.Client(sys.argv[1:], restart_guard=False, node_timeout=1.0)
held = client.lock("k", ttl=30)
try:
    print("waits", flush=True)
    client.lock("k", ttl=30, timeout=60)
except KeyboardInterrupt:
    held.unlock()
    client.lock("k", ttl=10).unlock()
    print("interrupted", flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", program, *servers.urls], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "waits\n"
        time.sleep(0.2)
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        assert time.monotonic() - begin < 20
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert servers.are_empty()


def test_ctrl_c_ends_the_wait_for_the_last_releases(servers: Servers) -> None:
    program = """
import sys, redbolt
client = redbolt.Client(sys.argv[1:], restart_guard=False, node_timeout=1.0)
lease = client.lock("k", ttl=30)
print("holds", flush=True)
sys.stdin.readline()
del lease
try:
    print("waits", flush=True)
    client.shutdown(limit=60)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    command = [sys.executable, "-c", program, *servers.urls]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdin is not None and process.stdout is not None and process.stdout.readline() == "holds\n"
        for server in servers:
            server.freeze()
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "waits\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0 and process.stdout.readline() == "interrupted\n"
    finally:
        process.kill()
        process.communicate()


def test_a_client_that_was_shut_down_says_so(servers: Servers) -> None:
    client = redbolt.Client(servers.urls, **SETTINGS)
    lease = client.lock("k", ttl=1)
    assert client.shutdown() == 0
    for call in (lambda: client.lock("k", ttl=1), client.ready, lambda: lease.extend(1), lease.unlock):
        with pytest.raises(redbolt.Closed):
            call()
    assert client.shutdown() == 0
    unused = redbolt.Client(servers.urls)
    unused.shutdown()
    with pytest.raises(redbolt.Closed):
        unused.lock("k", ttl=1)


def test_no_message_has_a_password_or_a_token(servers: Servers) -> None:
    secret = "hunter2-of-the-tests"
    for server in servers:
        server.ask("CONFIG", "SET", "requirepass", secret)
    urls = [url.replace("//", f"//:{secret}x@") for url in servers.urls]
    told = []
    with redbolt.Client(urls, **SETTINGS) as client:
        with pytest.raises(redbolt.NoQuorum) as none:
            client.lock("k", ttl=10, timeout=1.0)
        told += [str(none.value), repr(none.value), repr(none.value.votes), repr(client)]
        assert "credentials" in {answer for _, answer in none.value.votes}
    for wrong in (f"redis://:{secret}@host:port", f"redis://u:{secret}@[::"):
        with pytest.raises(redbolt.InvalidArgument) as invalid:
            redbolt.Client([wrong])
        told.append(str(invalid.value))
    for server in servers[:3]:
        server.ask_as(secret, "CONFIG", "SET", "requirepass", "")
    with redbolt.Client(servers.urls, **SETTINGS, password=secret) as client:
        lease = client.lock("k", ttl=10)
        tokens = {server.ask("GET", "k") for server in servers[:3]} - {b"$-1"}
        assert len(tokens) == 1
        told += [repr(lease), str(lease)]
        assert not any(token.decode(errors="replace") in line for token in tokens for line in told)
    assert not any(secret in line for line in told), told


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors by /proc")
def test_a_client_opens_nothing_before_its_first_lock_and_leaves_nothing_open(servers: Servers) -> None:
    before = len(os.listdir("/proc/self/fd"))
    threads = len(os.listdir("/proc/self/task"))
    client = redbolt.Client(servers.urls, **SETTINGS)
    assert len(os.listdir("/proc/self/fd")) <= before
    client.lock("k", ttl=10).unlock()
    assert len(os.listdir("/proc/self/fd")) > before
    client.shutdown()
    del client
    assert eventually(lambda: len(os.listdir("/proc/self/fd")) <= before)
    assert eventually(lambda: len(os.listdir("/proc/self/task")) <= threads)
