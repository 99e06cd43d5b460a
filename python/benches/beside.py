"""Redbolt for Python beside a raw-socket probe, pottery, redlock-py, and Redbolt for Rust.

usage: python python/benches/beside.py [SECONDS]

Starts five servers of Valkey 9.1. All clients take turns in one run, so the ratios compare. Needs the
package, and pottery, redlock-py, hiredis and uvloop for their rows; for the hand-over of the Rust client
`benches/peers/build redbolt`. Reports; no test reads it.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable

import redbolt
import redbolt.asyncio

ROOT = Path(__file__).resolve().parents[2]
SERVER = Path(os.environ.get("REDBOLT_SERVERS", ROOT / "target/servers")) / "bin/valkey-9.1"
RUST_PEER = ROOT / "target/peers/bin/redbolt"
NODES, ROUNDS, TTL = 5, 5, 10
now = time.perf_counter


def start(folder: str, started: list[subprocess.Popen[bytes]]) -> list[int]:
    """Starts the servers, and returns their ports."""
    ports = []
    for _ in range(NODES):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command: list[str | Path] = [SERVER, "--port", str(port), "--bind", "127.0.0.1", "--dir", folder, "--save", ""]
        command += ["--maxmemory-policy", "noeviction"]
        started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
        ends = now() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                if now() > ends:
                    raise
                time.sleep(0.01)
        ports.append(port)
    return ports


class Probe:
    """The least that a lock costs in Python: one write per node, and reads until three have answered."""

    def __init__(self, ports: list[int]) -> None:
        self.sockets = [socket.create_connection(("127.0.0.1", port)) for port in ports]
        self.poll = select.epoll()
        self.by_number = {one.fileno(): one for one in self.sockets}
        for one in self.sockets:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            one.setblocking(False)
            self.poll.register(one, select.EPOLLIN)
        self.owed = dict.fromkeys(self.by_number, 0)

    def quorum(self, request: bytes) -> None:
        for number, one in self.by_number.items():
            one.send(request)
            self.owed[number] += 1
        answered = 0
        while answered <= NODES // 2:
            for number, _ in self.poll.poll():
                self.owed[number] -= self.by_number[number].recv(4096).count(b"\r\n")
                answered += self.owed[number] == 0

    def lock(self, key: str) -> str:
        token = "0123456789abcdef0123"
        words = ("SET", key, token, "NX", "PX", str(TTL * 1000))
        request = f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
        self.quorum(request.encode())
        return key

    def unlock(self, key: str) -> None:
        self.quorum(f"*2\r\n$3\r\nDEL\r\n${len(key)}\r\n{key}\r\n".encode())


def clients(ports: list[int]) -> dict[str, tuple[Callable[[str], Any], Callable[[Any], Any]]]:
    urls = [f"redis://127.0.0.1:{port}" for port in ports]
    found: dict[str, tuple[Callable[[str], Any], Callable[[Any], Any]]] = {}
    probe, client = Probe(ports), redbolt.Client(urls, restart_guard=False)
    found["raw-socket probe"] = probe.lock, probe.unlock
    found["redbolt"] = lambda key: client.lock(key, TTL), lambda lease: lease.unlock()
    try:
        import pottery
        import redis
        import redlock

        masters = {redis.Redis.from_url(url) for url in urls}
        manager = redlock.Redlock([{"host": "127.0.0.1", "port": port} for port in ports])

        def of_pottery(key: str) -> Any:
            lock = pottery.Redlock(key=key, masters=masters, auto_release_time=TTL)
            lock.acquire()
            return lock

        found["pottery"] = of_pottery, lambda lock: lock.release()
        found["redlock-py"] = lambda key: manager.lock(key, TTL * 1000), manager.unlock
    except ImportError as missing:
        print(f"left out: {missing}")
    return found


def latencies(ports: list[int], seconds: float) -> None:
    found = clients(ports)
    medians: dict[str, list[float]] = {name: [] for name in found}
    for round_ in range(ROUNDS + 1):
        for name, (lock, unlock) in found.items():
            times, ends, number = [], now() + seconds, 0
            while now() < ends:
                number += 1
                begin = now()
                lease = lock(f"{name}:{number}")
                times.append(now() - begin)
                unlock(lease)
            if round_:  # the first opens the connections
                medians[name].append(statistics.median(times) * 1e6)
    floor = statistics.median(medians["raw-socket probe"])
    for name, times in medians.items():
        p50 = statistics.median(times)
        print(f"acquire p50   {name:24} {p50:9.1f} us  {p50 / floor:6.2f} times the probe")


async def of_tasks(urls: list[str], seconds: float) -> tuple[float, float]:
    """Cycles per second, and per second of this process's processor time."""
    async with redbolt.asyncio.Client(urls, restart_guard=False) as client:
        done = 0

        async def work(worker: int) -> None:
            nonlocal done
            number = 0
            while now() < ends:
                number += 1
                async with client.lock(f"{worker}:{number}", ttl=TTL):
                    pass
                done += 1

        await (await client.lock("warm", ttl=TTL, timeout=20)).unlock()
        begin, used = now(), time.process_time()
        ends = begin + seconds
        await asyncio.gather(*(work(worker) for worker in range(64)))
        return done / (now() - begin), done / (time.process_time() - used)


async def of_pottery_tasks(urls: list[str], seconds: float) -> float:
    import pottery
    import redis.asyncio

    masters = {redis.asyncio.Redis.from_url(url) for url in urls}
    done = 0

    async def work(worker: int) -> None:
        nonlocal done
        number = 0
        while now() < ends:
            number += 1
            lock = pottery.AIORedlock(key=f"{worker}:{number}", masters=masters, auto_release_time=TTL)
            async with lock:
                pass
            done += 1

    begin = now()
    ends = begin + seconds
    await asyncio.gather(*(work(worker) for worker in range(64)))
    rate = done / (now() - begin)
    for master in masters:
        await master.aclose()
    return rate


def rates(ports: list[int], seconds: float) -> None:
    urls = [f"redis://127.0.0.1:{port}" for port in ports]
    rows: dict[str, Callable[[], tuple[float, float]]] = {"redbolt.asyncio": lambda: asyncio.run(of_tasks(urls, seconds))}
    try:
        import uvloop

        rows["redbolt.asyncio, uvloop"] = lambda: uvloop.run(of_tasks(urls, seconds))
    except ImportError as missing:
        print(f"left out: {missing}")
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in rows}
    for _ in range(ROUNDS):
        for name, row in rows.items():
            found[name].append(row())
    for name, pairs in found.items():
        rate, of_processor = (statistics.median(one) for one in zip(*pairs))
        print(f"64 tasks      {name:24} {rate:9.0f} cycles/s  {of_processor:9.0f} per second of the processor")
    try:
        print(f"64 tasks      {'pottery':24} {asyncio.run(of_pottery_tasks(urls, seconds)):9.0f} cycles/s")
    except Exception as error:
        print(f"64 tasks      pottery: {type(error).__name__}")


class Peer:
    """A client in a process of its own, behind the lines of benches/peers/README.md."""

    def __init__(self, command: list[str]) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, text=True, bufsize=1, **pipes)  # type: ignore[call-overload]
        self.answer()

    def say(self, line: str) -> None:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def peer(nodes: str) -> None:
    """The program of a peer."""
    client = redbolt.Client([f"redis://{node}" for node in nodes.split(",")], restart_guard=False)
    client.ready()
    print("{}", flush=True)
    held: dict[str, redbolt.Lease] = {}
    for line in sys.stdin:
        name, key, *_ = line.split()
        begin = time.monotonic_ns()
        if name == "lock":
            held[key] = client.lock(key, TTL, timeout=60)
        else:
            held.pop(key).unlock()
        print(json.dumps({"from": begin, "to": time.monotonic_ns()}), flush=True)


def hand_overs(ports: list[int], seconds: float) -> None:
    nodes = ",".join(f"127.0.0.1:{port}" for port in ports)
    commands = {"redbolt (Python)": [sys.executable, __file__, "--peer", nodes]}
    if RUST_PEER.exists():
        commands["redbolt (Rust)"] = [str(RUST_PEER), nodes, "tuned"]
    pairs = {name: [Peer(command), Peer(command)] for name, command in commands.items()}
    times: dict[str, list[float]] = {name: [] for name in pairs}
    ends = now() + seconds * ROUNDS * len(pairs)
    turn = 0
    while now() < ends:
        turn += 1
        for name, (holder, waiter) in pairs.items():
            key = f"hand:{turn}"
            holder.say(f"lock {key} {TTL * 1000}")
            holder.answer()
            waiter.say(f"lock {key} {TTL * 1000}")
            time.sleep(0.005 + random.random() * 0.005)
            holder.say(f"unlock {key}")
            begin = holder.answer()["from"]
            times[name].append((waiter.answer()["to"] - begin) / 1e3)
            waiter.say(f"unlock {key}")
            waiter.answer()
    for name, found in times.items():
        print(f"hand-over p50 {name:24} {statistics.median(found):9.1f} us")
        for one in pairs[name]:
            one.end()


def main() -> None:
    if sys.argv[1:2] == ["--peer"]:
        return peer(sys.argv[2])
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    with tempfile.TemporaryDirectory() as folder:
        started: list[subprocess.Popen[bytes]] = []
        try:
            ports = start(folder, started)
            latencies(ports, seconds)
            rates(ports, seconds)
            hand_overs(ports, seconds)
        finally:
            for process in started:
                process.kill()
                process.wait()


if __name__ == "__main__":
    main()
