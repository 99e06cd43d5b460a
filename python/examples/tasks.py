"""A hundred tasks ship orders; two of a kind never run at the same time, and a late one gives up.

usage: python python/examples/tasks.py [REDIS-URL ..]; without servers, on nodes in the process
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

import redbolt
import redbolt.asyncio
import redbolt.testing


async def ship(client: redbolt.asyncio.Client, order: int, inside: set[int]) -> str:
    customer = order % 10
    try:
        async with client.lock(f"example:customer:{customer}", ttl=10, timeout=30, keep_alive=True) as lease:
            assert customer not in inside, "two at the same time"
            inside.add(customer)
            await asyncio.sleep(0.001)  # packs
            inside.remove(customer)
            return "shipped" if not lease.lost else "late"
    except redbolt.Taken:
        return "late"


async def main() -> None:
    with contextlib.ExitStack() as stack:
        nodes = sys.argv[1:] or stack.enter_context(redbolt.testing.nodes(5)).urls
        async with redbolt.asyncio.Client(nodes, node_timeout=1) as client:
            inside: set[int] = set()
            done = await asyncio.gather(*(ship(client, order, inside) for order in range(100)))
            async with client.lock("example:customer:0", ttl=10):
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(client.lock("example:customer:0", ttl=10), 0.05)
                    raise AssertionError("the lock is held")
        assert done.count("shipped") == 100, done
        print("100 orders shipped")


if __name__ == "__main__":
    asyncio.run(main())
