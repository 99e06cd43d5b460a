"""Nodes inside your tests: no server to install, and they fail when told to.

    with redbolt.testing.nodes(5) as nodes, redbolt.Client(nodes.urls) as client:
        nodes.pause(0)  # hangs
        with client.lock("sku:42", ttl=10): ...

With pytest, the fixture `redbolt_nodes` is five nodes for one test.
"""

from redbolt._redbolt import Nodes

__all__ = ["Nodes", "nodes"]


def nodes(count: int = 5) -> Nodes:
    """Starts `count` nodes, 1 to 32, on free ports of 127.0.0.1. Leave the `with` block, or call `close()`."""
    return Nodes(count)
