"""The types of the compiled module. `redbolt` and its modules export what is for users."""

from asyncio import AbstractEventLoop, Future
from collections.abc import Iterable
from types import TracebackType
from typing import Literal, TypedDict, final

from typing_extensions import Self, TypeAlias, Unpack

Key: TypeAlias = str | bytes

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

@final
class Client:
    def __new__(cls, nodes: Iterable[str], **options: Unpack[Settings]) -> Self: ...
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
        linger: float = 0.0,
    ) -> Lease: ...
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
        linger: float = 0.0,
    ) -> Lease: ...
    def ready(self, timeout: float = 10.0) -> None: ...
    def shutdown(self, limit: float = 1.0) -> int: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

@final
class Lease:
    def remaining(self) -> float: ...
    @property
    def lost(self) -> bool: ...
    @property
    def fence(self) -> int | None: ...
    def fence_of(self, key: Key) -> int | None: ...
    @property
    def slot(self) -> int | None: ...
    @property
    def keys(self) -> tuple[bytes, ...]: ...
    def extend(self, ttl: float) -> None: ...
    def unlock(self) -> bool: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

@final
class LoopLease:
    def remaining(self) -> float: ...
    @property
    def lost(self) -> bool: ...
    @property
    def fence(self) -> int | None: ...
    def fence_of(self, key: Key) -> int | None: ...
    @property
    def slot(self) -> int | None: ...
    @property
    def keys(self) -> tuple[bytes, ...]: ...
    def extend(self, ttl: float) -> Future[None]: ...
    def unlock(self) -> Future[bool]: ...
    def _end(self) -> Future[bool] | None: ...

@final
class Driver:
    def __new__(
        cls,
        event_loop: AbstractEventLoop | None,
        nodes: Iterable[str],
        **options: Unpack[Settings],
    ) -> Self: ...
    def fileno(self) -> int: ...
    def drive(self) -> None: ...
    def fire(self) -> None: ...
    def lock(
        self,
        waits: bool,
        key: Key | Iterable[Key],
        ttl: float,
        timeout: float | None,
        keep_alive: bool,
        fenced: bool,
        slots: int | None,
        read: int | None,
        write: int | None,
        min_validity: float,
    ) -> Future[LoopLease]: ...
    def give_up(self, future: Future[LoopLease]) -> None: ...
    def close(self) -> Ending | None: ...

@final
class Ending:
    def finish(self, limit: float) -> int: ...

@final
class Nodes:
    def __new__(cls, count: int = 5) -> Self: ...
    @property
    def urls(self) -> list[str]: ...
    def pause(self, node: int) -> None: ...
    def resume(self, node: int) -> None: ...
    def kill(self, node: int) -> None: ...
    def restart(self, node: int, *, keeps_memory: bool = False) -> None: ...
    def key_count(self, node: int) -> int: ...
    def close(self) -> None: ...
    def __len__(self) -> int: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
