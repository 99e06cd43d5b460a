"""Real servers on free ports, one process each; every test ends those that it started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Callable, Iterator

import pytest

ROOT = Path(__file__).resolve().parents[2]
SERVERS = Path(os.environ.get("REDBOLT_SERVERS", ROOT / "target" / "servers")) / "bin"
VERSIONS = ("redis-7.0", "redis-8.0", "redis-8.6", "valkey-8.1", "valkey-9.1")

# A machine that is busy for a moment is no fault of a node.
SETTINGS = {"restart_guard": False, "node_timeout": 1.0, "max_ttl": 60.0}


def eventually(is_true: Callable[[], bool], limit: float = 20.0) -> bool:
    """Whether it becomes true before the limit."""
    ends = time.monotonic() + limit
    while not is_true():
        if time.monotonic() > ends:
            return False
        time.sleep(0.005)
    return True


class Server:
    """One real server."""

    def __init__(self, version: str, folder: Path) -> None:
        folder.mkdir()
        # Another process may take the port between the look and the server's start.
        for _ in range(5):
            if self._starts(version, folder):
                return
        raise RuntimeError((folder / "log").read_text())

    def _starts(self, version: str, folder: Path) -> bool:
        """Starts the server. Whether it accepts connections before it ends or the time is over."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        command = [SERVERS / version, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", folder]
        command += ["--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"]
        self._log = (folder / "log").open("wb")
        self.process = subprocess.Popen(command, stdout=self._log, stderr=subprocess.STDOUT)
        is_ready = False

        def is_known() -> bool:
            nonlocal is_ready
            is_ready = "Ready to accept connections" in (folder / "log").read_text()
            return is_ready or self.process.poll() is not None

        try:
            eventually(is_known)
        finally:
            if not is_ready:
                self.end()
        return is_ready

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def ask(self, *words: str) -> bytes:
        """The first line of the answer to a command."""
        return self.ask_as("", *words)

    def ask_as(self, password: str, *words: str) -> bytes:
        """As `ask`, with a login where there is a password."""
        commands = [("AUTH", password), words] if password else [words]
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as connection:
            for command in commands:
                request = f"*{len(command)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in command)
                connection.sendall(request.encode())
            with connection.makefile("rb") as answers:
                for _ in commands[1:]:
                    answers.readline()
                first = answers.readline().strip()
                return answers.readline().strip() if first.startswith(b"$") and first != b"$-1" else first

    def keys(self) -> int:
        return int(self.ask("DBSIZE").removeprefix(b":"))

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        if self.process.poll() is None:
            self.thaw()
            self.kill()
        self._log.close()


class Servers(list[Server]):
    @property
    def urls(self) -> list[str]:
        return [server.url for server in self]

    def are_empty(self) -> bool:
        """Whether no key is left at the servers that run."""
        return eventually(lambda: all(server.keys() == 0 for server in self if server.process.poll() is None))


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    """Five real servers, one of each version that is here."""
    versions = [version for version in VERSIONS if (SERVERS / version).exists()]
    if not versions:
        pytest.skip("SKIPPED no real server is installed: run tests/servers.sh target/servers")
    started = Servers()
    try:
        for place in range(5):
            version = versions[place % len(versions)]
            started.append(Server(version, tmp_path / f"{place}-{version}"))
        yield started
    finally:
        for server in started:
            server.end()
