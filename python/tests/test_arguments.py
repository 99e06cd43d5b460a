"""Settings and arguments that cannot work are refused, with words that say how to correct them."""

from __future__ import annotations

import asyncio
import math
import pickle
import sys
from typing import Any, get_type_hints

import pytest

import redbolt
import redbolt.asyncio

NODES = ["redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"]

# A value for each setting of a client, and one that is refused.
SETTINGS: dict[str, tuple[Any, Any]] = {
    "next_nodes": (["redis://127.0.0.1:4"], "redis://127.0.0.1:4"),
    "quorum": (2, 1),
    "node_timeout": (0.5, -1),
    "connect_timeout": (0.5, math.nan),
    "max_ttl": (10, 0.001),
    "drift_factor": (0.02, 0.9),
    "restart_guard": (False, "no"),
    "failover_guard": (False, "no"),
    "admission": ("lenient", "lax"),
    "retry_timeout": (math.inf, -1),
    "retry_delay": (0.1, -1),
    "retry_jitter": (0.1, -1),
    "direct_wake": (False, "no"),
    "in_flight_max": (10, 0),
    "max_extensions": (3, 1 << 20),
    "max_hold": (60, -1),
    "local_turns": (3, -1),
    "transfers_in_row": (3, 256),
    "max_clock_skew": (0.5, 1e6),
    "fence_ttl": (86400, 1),
    "key_prefix": (b"app:", "x" * 5000),
    "client_name": ("shop", "a b"),
    "username": ("u", 7),
    "password": ("p", 7),
    "tls_ca": (None, b"no certificate"),
    "tls_cert": (None, b"no certificate"),
    "tls_key": (None, b"no key"),
    "tls_server_name": (None, 7),
}


@pytest.mark.parametrize("kind", [redbolt.Client, redbolt.asyncio.Client])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_is_taken_by_its_name_and_checked_before_any_lock(kind: Any, name: str) -> None:
    right, wrong = SETTINGS[name]
    if right is not None:
        # A user without a password is refused.
        more = {"password": "p"} if name == "username" else {}
        kind(NODES, **{name: right}, **more)
    with pytest.raises((redbolt.InvalidArgument, TypeError, OverflowError), match="(?i)" + name.split("_")[0]):
        kind(NODES, **{name: wrong})


def test_a_list_of_nodes_may_be_read_only_once() -> None:
    client = redbolt.asyncio.Client(iter(NODES), next_nodes=iter(NODES))

    async def connect() -> None:
        client._here()
        await client.shutdown()

    asyncio.run(connect())


def test_no_other_name_is_a_setting() -> None:
    with pytest.raises(TypeError, match="no setting .ttl."):
        redbolt.Client(NODES, **{"ttl": 1})


@pytest.mark.parametrize("kind", [redbolt.Client, redbolt.asyncio.Client])
@pytest.mark.parametrize("nodes", [[], NODES[0], ["redis://h:port"], NODES + NODES[:1], [7], None])
def test_lists_that_are_no_nodes_are_refused(kind: Any, nodes: Any) -> None:
    with pytest.raises((redbolt.InvalidArgument, TypeError), match="node"):
        kind(nodes)


class Unreadable:
    def __iter__(self) -> Any:
        raise ConnectionError("the database is away")


def test_the_error_of_an_iterable_is_told_as_it_is(redbolt_nodes: Any) -> None:
    with redbolt.Client(redbolt_nodes.urls) as client, pytest.raises(ConnectionError):
        client.lock(Unreadable(), ttl=10)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "asked",
    [
        {"ttl": 0},
        {"ttl": -1},
        {"ttl": math.nan},
        {"ttl": math.inf},
        {"ttl": 31},
        {"key": ""},
        {"key": "x" * 4097},
        {"key": "k:fence"},
        {"key": []},
        {"key": ["a", "a"]},
        {"key": [str(number) for number in range(65)]},
        {"timeout": -1},
        {"timeout": math.nan},
        {"min_validity": -1},
        {"linger": -1},
        {"slots": 0},
        {"slots": 64},
        {"slots": 2, "read": 2},
        {"read": 2, "write": 2},
        {"linger": 1, "fenced": True},
    ],
)
def test_arguments_that_cannot_work_are_refused(redbolt_nodes: Any, asked: dict[str, Any]) -> None:
    with redbolt.Client(redbolt_nodes.urls) as client, pytest.raises(redbolt.InvalidArgument):
        client.lock(**{"key": "k", "ttl": 10, **asked})
    assert all(redbolt_nodes.key_count(node) == 0 for node in range(5))


@pytest.mark.parametrize("key", [None, 7, [7], ["a", None]])
def test_a_key_of_another_type_is_no_key(redbolt_nodes: Any, key: Any) -> None:
    with redbolt.Client(redbolt_nodes.urls) as client, pytest.raises(TypeError, match="a key is str or bytes, not "):
        client.lock(key, ttl=10)
    with redbolt.Client(redbolt_nodes.urls) as client, pytest.raises(UnicodeEncodeError, match="position 14"):
        client.lock("no character: \ud800", ttl=10)


def test_errors_are_of_one_family_and_go_through_pickle() -> None:
    for name in redbolt.__all__:
        kind = getattr(redbolt, name)
        if isinstance(kind, type) and issubclass(kind, Exception):
            assert issubclass(kind, redbolt.Error) and kind.__module__ == "redbolt" and kind.__doc__
            error = pickle.loads(pickle.dumps(kind("words", (("a:1", "held"),))))
            assert str(error) == "words" and error.votes == (("a:1", "held"),)
    assert issubclass(redbolt.InvalidArgument, ValueError)


def test_everything_for_users_has_words_for_help() -> None:
    for owner in (redbolt.Client, redbolt.Lease, redbolt.asyncio.Client, redbolt.asyncio.Lease):
        assert owner.__doc__
        for name, member in vars(owner).items():
            assert name.startswith("_") or member.__doc__, f"{owner}.{name}"
    # The settings that help() lists are those that there are.
    words = redbolt.Client.__doc__ or ""
    for name in SETTINGS:
        assert name in words, name


def test_a_second_interpreter_of_the_process_cannot_import_it() -> None:
    name = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
    interpreters = pytest.importorskip(name)
    program = f"""
import sys
sys.path[:] = {sys.path}
try:
    import redbolt
except ImportError as error:
    assert "another interpreter" in str(error), error
else:
    raise AssertionError("its exceptions are those of the first interpreter")
"""
    # As mod_wsgi makes it. In an isolated one Python itself refuses modules such as this.
    other = interpreters.create("legacy") if sys.version_info >= (3, 13) else interpreters.create(isolated=False)
    # Before 3.13 what the program raises comes here; later it is returned.
    assert interpreters.run_string(other, program) is None
    interpreters.destroy(other)
