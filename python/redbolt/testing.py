"""Nodes inside your tests: no server to install, and they fail when told to.

    with redbolt.testing.nodes(5) as nodes, redbolt.Client(nodes.urls) as client:
        nodes.pause(0)  # hangs
        with client.lock("sku:42", ttl=10): ...

With pytest, the fixture `redbolt_nodes` is five nodes for one test.
"""

from redbolt._redbolt import Nodes

__all__ = ["Nodes", "nodes"]


def nodes(count: int = 5) -> Nodes:
    """Starts `count` nodes on free ports of 127.0.0.1. The end of the `with` block, or `close()`, ends them."""
    return Nodes(count)
