"""The exceptions. Each message is one line, names the nodes, and never has a token or a password."""

from __future__ import annotations


class Error(Exception):
    """A call failed. `votes` has each node's name and its answer in one word.

    An answer is "granted", "held" (by another client), or the reason why the node gave none, such as
    "timeout" or "connection_refused". Without a vote, `votes` is empty.
    """

    votes: tuple[tuple[str, str], ...]

    def __init__(self, message: str = "", votes: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(message)
        self.votes = votes


class Taken(Error):
    """Another client holds the lock: leave the work to that client, or wait with `lock`."""


class NoQuorum(Error):
    """Too few nodes could vote, or answered in time. Try again; the message names nodes that need repair."""


class Expired(Error):
    """The lease is over, or was won with less left of it than the call asked for."""


class Lost(Error):
    """No quorum holds the lock any more, or its time was over before the work was done: stop the work."""


class NotHeld(Error):
    """The lock was over before it was unlocked. Another holder may have been at work at the same time."""


class LimitReached(Error):
    """The lease may not be extended any further (`max_extensions`, `max_hold`)."""


class Busy(Error):
    """Another extension of this lease is under way."""


class Full(Error):
    """Too many calls are under way (`in_flight_max`)."""


class Closed(Error):
    """The client was shut down, or the lease is the parent process's."""


class System(Error):
    """The operating system refused something that the client needs."""


class InvalidArgument(Error, ValueError):
    """An argument or a setting cannot work. The message says why."""


def _name_as_users_do() -> None:
    for kind in (Error, *Error.__subclasses__()):
        kind.__module__ = "redbolt"


_name_as_users_do()
