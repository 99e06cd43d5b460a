"""Locks for tasks, on real servers, in asyncio's own loop and in uvloop's."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import subprocess
import sys
import time
from typing import Any, Callable, Coroutine, Iterator

import pytest
from conftest import SETTINGS, Servers, eventually

import redbolt
import redbolt.asyncio
from redbolt.asyncio import Client, Lease

# Random cancellations in one test; a long run has a million.
CANCELLATIONS = int(os.environ.get("REDBOLT_CANCELLATIONS", "4000"))
LIMIT = 120 + CANCELLATIONS / 100

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Runs a coroutine in a fresh event loop of each kind; no task's error goes unseen."""
    if request.param == "uvloop":
        new_loop: Callable[[], asyncio.AbstractEventLoop] = pytest.importorskip("uvloop").new_event_loop
    else:
        new_loop = asyncio.new_event_loop
    unseen: list[dict[str, Any]] = []

    def run(main: Coroutine[Any, Any, Any]) -> Any:
        loop = new_loop()
        loop.set_exception_handler(lambda _, context: unseen.append(context))
        try:
            return loop.run_until_complete(asyncio.wait_for(main, LIMIT))
        finally:
            gc.collect()
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    yield run
    gc.collect()
    assert unseen == []


def test_a_lock_is_held_within_its_block_and_free_behind_it(servers: Servers, run: Run) -> None:
    async def main() -> None:
        async with Client(servers.urls, **SETTINGS) as client:
            async with client.lock("sku:42", ttl=10) as lease:
                assert 9 < lease.remaining() < 10 and not lease.lost
                assert lease.keys == (b"sku:42",) and lease.slot is None and lease.fence is None
                with pytest.raises(redbolt.Taken) as taken:
                    await client.try_lock("sku:42", ttl=10)
                assert len(taken.value.votes) == 5
                await lease.extend(20)
                assert 19 < lease.remaining() < 20
            assert lease.lost and servers.are_empty()
            with pytest.raises(redbolt.NotHeld):
                await lease.unlock()
            lease = await client.lock("sku:42", ttl=10)
            extension = lease.extend(20)
            await lease.unlock()
            with pytest.raises(redbolt.NotHeld, match="unlocked before"):
                await extension
            lease = await client.lock(["a", "b"], ttl=10)
            assert lease.keys == (b"a", b"b")
            assert await lease.unlock() is True

    run(main())
    assert servers.are_empty()


def test_waiters_get_their_turn_one_after_another(servers: Servers, run: Run) -> None:
    async def main() -> None:
        inside = turns = 0

        async def work(client: Client) -> None:
            nonlocal inside, turns
            for _ in range(5):
                async with client.lock("k", ttl=30, timeout=60):
                    assert inside == 0
                    inside += 1
                    await asyncio.sleep(0)
                    inside -= 1
                    turns += 1

        async with Client(servers.urls, **SETTINGS) as one, Client(servers.urls, **SETTINGS) as other:
            await asyncio.gather(*(work(client) for client in (one, other) for _ in range(10)))
        assert turns == 100

    run(main())
    assert servers.are_empty()


def test_the_client_starts_no_thread(servers: Servers, run: Run) -> None:
    async def main() -> None:
        before = len(os.listdir("/proc/self/task"))
        client = Client(servers.urls, **SETTINGS)

        async def work(key: str) -> None:
            async with client.lock(key, ttl=30):
                await asyncio.sleep(0.01)

        await asyncio.gather(*(work(f"k:{number}") for number in range(200)))
        assert len(os.listdir("/proc/self/task")) <= before
        await client.shutdown()

    run(main())


async def at_random_times(client: Client, calls: int, workers: int, keys: int) -> int:
    """Makes calls that are cancelled at random times, in and before their block. Returns how many were."""
    left = calls
    cancelled = 0
    holders: dict[str, int] = {}

    async def hold(key: str) -> None:
        options: dict[str, Any] = {"keep_alive": random.random() < 0.1}
        if random.random() < 0.1:
            call = client.lock([key, "both:" + key], ttl=30, timeout=60, **options)
        else:
            call = client.lock(key, ttl=30, timeout=60, **options)
        if random.random() < 0.1:
            lease = await call
            # Nobody awaits the unlock, or refers to the lease.
            if random.random() < 0.5:
                lease.unlock()
            return
        async with call as lease:
            assert holders.get(key, 0) == 0
            holders[key] = 1
            try:
                for _ in range(random.randrange(3)):
                    await asyncio.sleep(0)
            finally:
                holders[key] = 0

    async def work() -> None:
        nonlocal left, cancelled
        while left > 0:
            left -= 1
            task = asyncio.ensure_future(hold(f"k:{random.randrange(keys)}"))
            turns = random.randrange(8)
            for _ in range(turns):
                await asyncio.sleep(0)
            if turns == 7:
                await asyncio.sleep(random.random() * 0.002)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                cancelled += 1

    await asyncio.gather(*(work() for _ in range(workers)))
    return cancelled


def test_a_call_that_is_cancelled_at_a_random_time_leaves_nothing_behind(servers: Servers, run: Run) -> None:
    async def main() -> None:
        async with Client(servers.urls, **SETTINGS) as client:
            cancelled = await at_random_times(client, CANCELLATIONS, workers=32, keys=8)
            assert cancelled > CANCELLATIONS / 10
            gc.collect()
            # Nothing waits and nothing is held: every key can be taken at once.
            for number in range(8):
                (await client.lock(f"k:{number}", ttl=10, timeout=5)).unlock()
            while not all(server.keys() == 0 for server in servers):
                await asyncio.sleep(0.01)

    run(main())
    assert servers.are_empty()


def test_a_timeout_of_asyncio_ends_a_wait_in_time(servers: Servers, run: Run) -> None:
    async def main() -> None:
        async with Client(servers.urls, **SETTINGS) as client:
            async with client.lock("k", ttl=30):
                begin = time.monotonic()
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(client.lock("k", ttl=30, timeout=60), 0.1)
                if sys.version_info >= (3, 11):
                    with pytest.raises(TimeoutError):
                        async with asyncio.timeout(0.1), client.lock("k", ttl=30, timeout=60):
                            pass
                assert time.monotonic() - begin < 20
            assert servers.are_empty()

    run(main())


async def is_over(lease: Lease) -> None:
    """Waits until the lease has ended."""
    ends = time.monotonic() + 20
    while not lease.lost and time.monotonic() < ends:
        await asyncio.sleep(0.01)
    assert lease.lost


def test_a_lock_is_kept_alive_while_the_loop_runs_and_lost_when_it_is_deleted(servers: Servers, run: Run) -> None:
    async def main() -> None:
        async with Client(servers.urls, **SETTINGS) as client:
            lease = await client.lock("k", ttl=2.0, keep_alive=True)
            await asyncio.sleep(2.5)
            assert not lease.lost and lease.remaining() > 0.5
            for server in servers:
                server.ask("DEL", "k")
            began = time.monotonic()
            await is_over(lease)
            assert time.monotonic() - began < 3
            with pytest.raises(redbolt.NotHeld):
                await lease.unlock()
            # A busy machine may need a while for a lock, which must not end before the block begins.
            with pytest.raises(redbolt.Lost):
                async with client.lock("k", ttl=0.5) as lease:
                    await is_over(lease)
            with pytest.raises(KeyError):
                async with client.lock("k", ttl=0.5) as lease:
                    await is_over(lease)
                    raise KeyError("of the work")

    run(main())


def test_a_lease_that_nothing_refers_to_is_released(servers: Servers, run: Run) -> None:
    async def main() -> None:
        async with Client(servers.urls, **SETTINGS) as client:
            await client.lock("k", ttl=60)
            gc.collect()
            ends = time.monotonic() + 20
            while any(server.keys() for server in servers) and time.monotonic() < ends:
                await asyncio.sleep(0.01)
            assert not any(server.keys() for server in servers)

    run(main())


def test_one_frozen_and_one_killed_server_stop_no_lock(servers: Servers, run: Run) -> None:
    async def main() -> None:
        async with Client(servers.urls, restart_guard=False, node_timeout=0.5) as client:
            await (await client.lock("k", ttl=10)).unlock()
            servers[0].freeze()
            servers[2].kill()
            for _ in range(20):
                async with client.lock("k", ttl=10) as lease:
                    assert lease.remaining() > 5
            servers[4].kill()
            with pytest.raises(redbolt.NoQuorum) as none:
                for _ in range(3):
                    await (await client.lock("k", ttl=10, timeout=1.0)).unlock()
            assert len(none.value.votes) == 5
            servers[0].thaw()
            async with client.lock("k", ttl=10, timeout=20):
                pass

    run(main())
    running = Servers(server for server in servers if server.process.poll() is None)
    assert running.are_empty()


def test_calls_under_way_end_when_the_client_is_shut_down(servers: Servers, run: Run) -> None:
    async def main() -> None:
        client = Client(servers.urls, **SETTINGS)
        held = await client.lock("k", ttl=1)
        waits = asyncio.ensure_future(client.lock("k", ttl=30, timeout=60)._take())
        await asyncio.sleep(0.05)
        assert await client.shutdown(20) == 0
        with pytest.raises(redbolt.Closed):
            await waits
        with pytest.raises(redbolt.Closed):
            await client.lock("k", ttl=10)
        with pytest.raises(redbolt.Closed):
            await held.unlock()
        assert await client.shutdown() == 0

    run(main())


def test_a_client_serves_one_loop_at_a_time_and_the_next_one_when_that_is_closed(servers: Servers) -> None:
    client = Client(servers.urls, **SETTINGS)

    async def take() -> Lease:
        return await client.lock("k", ttl=10)

    first = asyncio.new_event_loop()
    lease = first.run_until_complete(take())
    for call in (take, client.shutdown):
        with pytest.raises(RuntimeError, match="one client per loop"):
            asyncio.run(call())
    first.run_until_complete(asyncio.wait_for(lease.unlock(), 20))
    first.close()

    async def main() -> None:
        await (await client.lock("k", ttl=10)).unlock()

    asyncio.run(main())
    asyncio.run(main())
    assert servers.are_empty()


def open_descriptors() -> int:
    # Linux and macOS have it.
    return len(os.listdir("/dev/fd"))


def test_a_client_leaves_nothing_open_for_a_loop_that_is_closed(servers: Servers, run: Run) -> None:
    client = Client(servers.urls, **SETTINGS)

    async def main() -> int:
        await (await client.lock("k", ttl=10)).unlock()
        return open_descriptors()

    run(main())
    first = run(main())
    assert [run(main()) for _ in range(3)] == [first] * 3
    run(client.shutdown())
    assert open_descriptors() < first - 5


def test_the_collector_closes_clients_whose_loop_is_closed(servers: Servers, run: Run) -> None:
    leases = []

    async def main(is_held: bool) -> int:
        lease = await Client(servers.urls, **SETTINGS).lock(f"k:{is_held}", ttl=10, keep_alive=True)
        if is_held:
            leases.append(lease)
        return open_descriptors()

    def collected(is_held: bool) -> int:
        gc.collect()
        return run(main(is_held))

    first = collected(False)
    for _ in range(3):
        assert collected(False) <= first
    collected(True)
    gc.collect()
    # The lease keeps its driver, with a connection per server.
    held = open_descriptors()
    leases.clear()
    gc.collect()
    assert open_descriptors() <= held - len(servers.urls)


def test_a_loop_that_was_blocked_for_longer_than_a_lease_does_not_hand_it_out(servers: Servers, run: Run) -> None:
    async def main() -> None:
        async with Client(servers.urls, **SETTINGS) as client:
            await (await client.lock("warm", ttl=1)).unlock()
            call = asyncio.ensure_future(client.try_lock("k", ttl=0.1)._take())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            time.sleep(0.2)
            with pytest.raises(redbolt.Error):
                await call

    run(main())
    assert servers.are_empty()


def test_a_task_that_was_cancelled_after_its_lock_was_won_gives_it_back(servers: Servers, run: Run) -> None:
    async def main() -> None:
        async with Client(servers.urls, **SETTINGS) as client:
            driver = client._here()
            await (await client.lock("warm", ttl=1)).unlock()
            # The exceptions refer to the frames, and these to the leases: only the client can end those.
            kept = []
            for _ in range(50):
                task = asyncio.ensure_future(client.lock("k", ttl=60)._take())
                await asyncio.sleep(0)
                # The answers come while the loop does not look, and are settled right here.
                ends = time.monotonic() + 20
                while not (task._fut_waiter and task._fut_waiter.done()) and time.monotonic() < ends:  # type: ignore[attr-defined]
                    driver.drive()
                task.cancel()
                with pytest.raises(asyncio.CancelledError) as cancelled:
                    await task
                kept.append(cancelled)
                async with client.lock("k", ttl=10, timeout=5):
                    pass

    run(main())
    assert servers.are_empty()


def test_a_call_that_was_cancelled_makes_room_for_another(servers: Servers, run: Run) -> None:
    async def main() -> None:
        async with Client(servers.urls, **SETTINGS, in_flight_max=4) as client:
            async with client.lock("k", ttl=30):
                for _ in range(5):
                    waits = [asyncio.ensure_future(client.lock("k", ttl=30, timeout=60)._take()) for _ in range(4)]
                    await asyncio.sleep(0.05)
                    for one in waits:
                        one.cancel()
                    ended = await asyncio.gather(*waits, return_exceptions=True)
                    assert [type(one) for one in ended] == [asyncio.CancelledError] * 4
                    # The driver ends a cancelled call at its next turn.
                    await asyncio.sleep(0.05)

    run(main())
    assert servers.are_empty()


def test_many_calls_at_once_are_refused_beyond_the_limit(servers: Servers, run: Run) -> None:
    async def main() -> None:
        async with Client(servers.urls, **SETTINGS, in_flight_max=4) as client:
            calls = [client.lock(f"k:{number}", ttl=10)._take() for number in range(8)]
            ended = await asyncio.gather(*calls, return_exceptions=True)
            assert sum(isinstance(one, redbolt.Full) for one in ended) == 4
            await asyncio.gather(*(one.unlock() for one in ended if isinstance(one, Lease)))

    run(main())
    assert eventually(servers.are_empty)


def test_code_of_python_that_a_call_runs_may_use_its_lease_and_driver(servers: Servers) -> None:
    # As another thread, a signal handler or a finalizer does. It would wait for ever for a mutex of the call.
    program = """
import asyncio, sys, redbolt.asyncio
leases = []

class Loop(asyncio.SelectorEventLoop):
    def call_soon(self, *args, **more):
        for lease in leases:
            lease.remaining()
        return super().call_soon(*args, **more)

class Full(redbolt.Full):
    def __init__(self, *args):
        client._driver.fileno()
        super().__init__(*args)

async def main():
    async with client, client.lock("k", ttl=10) as lease:
        leases.append(lease)
        await lease.extend(20)
        extension = lease.extend(20)
        try:
            await client.try_lock("other", ttl=10)
        except redbolt.Full:
            print("full")
        await extension

client = redbolt.asyncio.Client(sys.argv[1:], restart_guard=False, node_timeout=1.0, in_flight_max=1)
redbolt._errors.Full = Full
Loop().run_until_complete(main())
"""
    command = [sys.executable, "-c", program, *servers.urls]
    assert subprocess.run(command, timeout=20, capture_output=True, text=True).stdout == "full\n"


class InterruptedLoop(asyncio.SelectorEventLoop):
    """Raises within `call_soon` when it is told to, as the handler of Ctrl-C may."""

    # Whether the call that it raises in is for `drive`, or wakes a task.
    interrupts_drive: bool | None = None
    drives = 0

    def call_soon(self, callback: Any, *args: Any, **more: Any) -> Any:
        is_drive = getattr(callback, "__name__", "") == "drive"
        self.drives += is_drive
        if self.interrupts_drive is is_drive:
            self.interrupts_drive = None
            raise KeyboardInterrupt
        return super().call_soon(callback, *args, **more)


def test_ctrl_c_comes_out_of_the_loop_where_a_task_is_woken(servers: Servers) -> None:
    loop = InterruptedLoop()
    client = Client(servers.urls, **SETTINGS)

    async def main() -> None:
        await (await client.lock("warm", ttl=10)).unlock()
        future = client._here().lock(True, "k", 10.0, None, False, False, None, None, None, 0.0)
        loop.interrupts_drive = False
        await asyncio.wait_for(future, 20)

    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(main())
    loop.run_until_complete(client.shutdown(20))
    loop.close()


def test_a_call_is_driven_at_once_after_ctrl_c_in_the_call_before(servers: Servers) -> None:
    loop = InterruptedLoop()
    client = Client(servers.urls, **SETTINGS)

    async def main() -> None:
        await (await client.lock("warm", ttl=10)).unlock()
        loop.interrupts_drive = True
        with pytest.raises(KeyboardInterrupt):
            await client.lock("k", ttl=10)
        drives = loop.drives
        call = asyncio.ensure_future(client.lock("other", ttl=10)._take())
        await asyncio.sleep(0)
        assert loop.drives > drives
        await (await call).unlock()
        await client.shutdown(20)

    loop.run_until_complete(main())
    loop.close()
    assert servers.are_empty()


def test_an_exception_of_a_block_goes_on_though_its_unlock_cannot_begin(servers: Servers, run: Run) -> None:
    async def main() -> None:
        client = Client(servers.urls, **SETTINGS, in_flight_max=1)
        with pytest.raises(KeyError):
            async with client.lock("k", ttl=10) as lease:
                extension = lease.extend(10)
                raise KeyError("of the work")
        await asyncio.wait([extension])
        assert isinstance(extension.exception(), redbolt.NotHeld)
        # The lock was released, though nobody waited for it.
        await (await client.lock("k", ttl=10, timeout=5)).unlock()
        with pytest.raises(KeyError):
            async with client.lock("k", ttl=1):
                await client.shutdown()
                raise KeyError("of the work")

    run(main())
    assert servers.are_empty()


def test_a_call_has_one_block_at_a_time(servers: Servers, run: Run) -> None:
    async def main() -> None:
        async with Client(servers.urls, **SETTINGS) as client:
            call = client.lock("k", ttl=10, slots=2)
            async with call as first:
                with pytest.raises(RuntimeError, match="one call per block"):
                    async with call:
                        pass
                assert not first.lost
            assert first.lost
            async with call as second:
                assert not second.lost

    run(main())
    assert servers.are_empty()
