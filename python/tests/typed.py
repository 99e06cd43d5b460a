"""Read by mypy --strict and pyright, never run: each line has the type that it claims."""

from __future__ import annotations

from typing import Optional

from typing_extensions import assert_type

import redbolt
import redbolt.asyncio
import redbolt.testing


def threads(nodes: list[str]) -> None:
    client = redbolt.Client(nodes, node_timeout=0.5, quorum=2, tls_ca=b"", key_prefix="app:")
    with client.lock("k", ttl=10, timeout=1, keep_alive=True) as lease:
        assert_type(lease, redbolt.Lease)
        assert_type(lease.remaining(), float)
        assert_type(lease.lost, bool)
        assert_type(lease.fence, Optional[int])
        assert_type(lease.keys, tuple[bytes, ...])
    assert_type(client.try_lock([b"a", "b"], 10).unlock(), bool)
    try:
        client.ready(5)
    except redbolt.Error as error:
        assert_type(error.votes, tuple[tuple[str, str], ...])
    client.lock(7, ttl=10)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    client.lock("k")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    client.lock("k", ttl=10, slot=5)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    redbolt.Client(nodes, timeout=5)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]


async def tasks(nodes: list[str]) -> None:
    async with redbolt.asyncio.Client(nodes, max_ttl=10) as client:
        async with client.lock("k", ttl=10) as lease:
            assert_type(lease, redbolt.asyncio.Lease)
            assert_type(await lease.extend(5), None)
        lease = await client.try_lock(["a", "b"], ttl=10, fenced=True)
        assert_type(lease.slot, Optional[int])
        assert_type(await lease.unlock(), bool)
        assert_type(await client.shutdown(), int)
        client.lock("k", ttl="10")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def nodes_of_tests() -> None:
    with redbolt.testing.nodes(3) as nodes:
        assert_type(nodes.urls, list[str])
