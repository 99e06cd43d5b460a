"""Eight threads sell a stock that only the lock protects.

usage: python python/examples/threads.py [REDIS-URL ..]; without servers, on nodes in the process
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time

import redbolt
import redbolt.testing

STOCK = 200


def main() -> None:
    with contextlib.ExitStack() as stack:
        nodes = sys.argv[1:] or stack.enter_context(redbolt.testing.nodes(5)).urls
        client = stack.enter_context(redbolt.Client(nodes, node_timeout=1))
        left, sold = STOCK, 0

        def sell() -> None:
            nonlocal left, sold
            while True:
                with client.lock("example:stock", ttl=10, timeout=60) as lease:
                    seen = left
                    time.sleep(0)  # another thread would come between
                    if seen == 0 or lease.remaining() < 1:
                        return
                    left, sold = seen - 1, sold + 1

        sellers = [threading.Thread(target=sell) for _ in range(8)]
        for seller in sellers:
            seller.start()
        for seller in sellers:
            seller.join()
        assert sold == STOCK and left == 0, f"{sold} sold, {left} left"
        print(f"{sold} of {STOCK} sold, none of them twice")


if __name__ == "__main__":
    main()
