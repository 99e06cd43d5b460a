"""Distributed locks on independent Redis or Valkey servers (the Redlock algorithm).

    import redbolt

    client = redbolt.Client(["redis://10.0.0.1:6379", "redis://10.0.0.2:6379", "redis://10.0.0.3:6379"])
    with client.lock("sku:42", ttl=10) as lease:  # waits for its turn
        if lease.remaining() > 1:  # ask right before each effect
            ...

`redbolt.asyncio` has the same for tasks, without a thread. `redbolt.testing` has nodes in the process, for
tests. A call that fails raises a kind of `redbolt.Error`. Its `votes` say what each node answered, and are
empty if no node was asked.
"""

from redbolt._errors import (
    Busy,
    Closed,
    Error,
    Expired,
    Full,
    InvalidArgument,
    LimitReached,
    Lost,
    NoQuorum,
    NotHeld,
    System,
    Taken,
)
from redbolt._redbolt import Client, Lease, __version__

__all__ = [
    "Busy",
    "Client",
    "Closed",
    "Error",
    "Expired",
    "Full",
    "InvalidArgument",
    "Lease",
    "LimitReached",
    "Lost",
    "NoQuorum",
    "NotHeld",
    "System",
    "Taken",
    "__version__",
]
