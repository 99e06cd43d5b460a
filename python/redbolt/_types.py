"""The types of arguments."""

from __future__ import annotations

from typing import Iterable, Literal, Optional, Tuple, TypedDict, Union

Key = Union[str, bytes]

# What a call for a lock asks for: from the key to `min_validity`, as `Driver.lock` has it.
Asked = Tuple[
    Union[Key, Iterable[Key]],
    float,
    Optional[float],
    bool,
    bool,
    Optional[int],
    Optional[int],
    Optional[int],
    float,
]


class Settings(TypedDict, total=False):
    """The keyword arguments of a client; times are seconds."""

    next_nodes: Iterable[str]
    quorum: int
    node_timeout: float
    connect_timeout: float
    max_ttl: float
    drift_factor: float
    restart_guard: bool
    failover_guard: bool
    admission: Literal["strict", "lenient"]
    retry_timeout: float
    retry_delay: float
    retry_jitter: float
    direct_wake: bool
    in_flight_max: int
    max_extensions: int
    max_hold: float
    local_turns: int
    transfers_in_row: int
    max_clock_skew: float
    fence_ttl: float
    key_prefix: Key
    client_name: str
    username: str
    password: str
    tls_ca: bytes
    tls_cert: bytes
    tls_key: bytes
    tls_server_name: str
