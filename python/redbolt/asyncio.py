"""Locks for the tasks of an asyncio event loop, without a thread.

    import redbolt.asyncio

    client = redbolt.asyncio.Client(["redis://10.0.0.1:6379", ..])
    async with client.lock("sku:42", ttl=10) as lease:
        ...

A task that is cancelled while it waits leaves nothing behind, so `asyncio.timeout` and `asyncio.wait_for`
may end any call. The loop of uvloop serves as well.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, Generator, Iterable

from redbolt._errors import Closed, Expired, Full, Lost
from redbolt._redbolt import Driver
from redbolt._redbolt import LoopLease as Lease

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self, Unpack

    from redbolt._types import Asked, Key, Settings

__all__ = ["Client", "Lease", "Locking"]


def _listed(nodes: Iterable[str]) -> Iterable[str]:
    # Each loop's driver reads the nodes again, so an iterator becomes a list. The driver refuses any
    # other value.
    return nodes if isinstance(nodes, str) or not isinstance(nodes, Iterable) else list(nodes)


class Client:
    """Locks on independent Redis or Valkey servers, for the tasks of one event loop.

    Takes the nodes and the settings of `redbolt.Client`. Making it connects to nothing: the first lock
    does, from the running event loop. Once that loop is closed, and in a process that was
    forked, the client connects anew with its next lock.

    `async with client:` shuts it down at the end of the block.
    """

    def __init__(self, nodes: Iterable[str], **settings: Unpack[Settings]) -> None:
        self._nodes = _listed(nodes)
        if "next_nodes" in settings:
            settings["next_nodes"] = _listed(settings["next_nodes"])
        self._settings = settings
        self._driver: Driver | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = os.getpid()
        self._is_closed = False
        # Raises what is wrong with the settings now, not with the first lock.
        Driver(None, self._nodes, **settings)

    def lock(
        self,
        key: Key | Iterable[Key],
        ttl: float,
        *,
        timeout: float | None = None,
        keep_alive: bool = False,
        fenced: bool = False,
        slots: int | None = None,
        read: int | None = None,
        write: int | None = None,
        min_validity: float = 0.0,
    ) -> Locking:
        """Takes the lock of a key, or of several keys at once, and waits until it has it.

            async with client.lock("sku:42", ttl=10) as lease: ...
            lease = await client.lock("sku:42", ttl=10)  # and later: await lease.unlock()

        Takes the arguments of `redbolt.Client.lock` except `linger`, and raises the same exceptions. It
        costs one round trip to the nodes. The holder's release wakes a call that waits.
        """
        asked = (key, ttl, timeout, keep_alive, fenced, slots, read, write, min_validity)
        return Locking(self, True, asked)

    def try_lock(
        self,
        key: Key | Iterable[Key],
        ttl: float,
        *,
        keep_alive: bool = False,
        fenced: bool = False,
        slots: int | None = None,
        read: int | None = None,
        write: int | None = None,
        min_validity: float = 0.0,
    ) -> Locking:
        """As `lock`, but tries once. Raises `Taken` if another caller holds the lock."""
        asked = (key, ttl, None, keep_alive, fenced, slots, read, write, min_validity)
        return Locking(self, False, asked)

    async def shutdown(self, limit: float = 1.0) -> int:
        """Ends the client: sends the releases that it owes, and waits for them at most `limit` seconds.

        Calls under way and later ones raise `Closed`. Returns how many releases the nodes have not
        confirmed; those keys end with their TTL, and so do leases that are still held. A thread of the
        loop's executor waits. Call it in the client's own loop, or once that loop is closed.
        """
        loop = asyncio.get_running_loop()
        self._refuse_other(loop)
        driver, self._driver, self._is_closed = self._driver, None, True
        if driver is None or self._process != os.getpid():
            return 0
        if self._loop is loop:
            loop.remove_reader(driver.fileno())
        ending = driver.close()
        return await loop.run_in_executor(None, ending.finish, limit) if ending else 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.shutdown()

    def _refuse_other(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._driver is None or self._loop is None or self._process != os.getpid():
            return
        if self._loop is not loop and not self._loop.is_closed():
            raise RuntimeError("the client serves another event loop: make one client per loop")

    def _here(self) -> Driver:
        """The driver of the running event loop."""
        loop = asyncio.get_running_loop()
        if self._loop is loop and self._driver is not None and self._process == os.getpid():
            return self._driver
        if self._is_closed:
            raise Closed("the client was shut down")
        self._refuse_other(loop)
        if self._driver is not None and self._process == os.getpid():
            # The driver's timer refers to the driver, and would keep its connections although their loop
            # is closed.
            self._driver.close()
        driver = Driver(loop, self._nodes, **self._settings)
        loop.add_reader(driver.fileno(), driver.drive)
        self._loop, self._driver, self._process = loop, driver, os.getpid()
        return driver


class Locking:
    """A call for a lock: await it for its lease, or enter it by `async with`, one block at a time."""

    __slots__ = ("_asked", "_client", "_has_block", "_lease", "_min_validity", "_waits")

    def __init__(self, client: Client, waits: bool, asked: Asked) -> None:
        self._client = client
        self._waits = waits
        self._asked = asked
        self._min_validity = asked[-1]
        self._has_block = False

    async def _take(self) -> Lease:
        driver = self._client._here()
        future = driver.lock(self._waits, *self._asked)
        try:
            lease = await future
            # The event loop may come back to this task long after the answers of the nodes.
            if lease.remaining() <= self._min_validity:
                raise Expired("the event loop was blocked while the lease went by: take the lock again")
            return lease
        except BaseException:
            driver.give_up(future)
            raise

    def __await__(self) -> Generator[Any, Any, Lease]:
        return self._take().__await__()

    async def __aenter__(self) -> Lease:
        if self._has_block:
            # The end of one block would release the lease of the other.
            raise RuntimeError("this call has a block already: make one call per block")
        self._has_block = True
        try:
            self._lease = lease = await self._take()
        except BaseException:
            self._has_block = False
            raise
        return lease

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._has_block = False
        was_held = not self._lease.lost
        try:
            ended = self._lease._end()
            is_over = ended is not None and not await ended
        except (Closed, Full):
            # Nobody waits for this release, and an exception of the block goes on.
            is_over = not was_held
        if is_over and kind is None:
            raise Lost("the lease ended before the work did")
