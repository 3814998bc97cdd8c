"""Asks a server again and again from several threads, each time by a new connection, until it is told to end.

Runs in a pod. When a file `/tmp/end` appears, it prints what it has seen as JSON.
"""

import collections
import json
import pathlib
import sys
import threading
import time
import urllib.request

_SLOW_SECONDS = 3.0


class RequestLoad:
    """The requests of one thread after another, and what became of them."""

    def __init__(self, url: str, patience: float) -> None:
        self._url = url
        self._patience = patience
        self.answers: collections.Counter[str] = collections.Counter()
        self.errors: list[dict[str, object]] = []
        self.slowest = 0.0
        self.slow = 0
        self.started = time.monotonic()

    def run(self) -> None:
        while not pathlib.Path("/tmp/end").exists():  # noqa: S108 - of the container
            self._ask()
            time.sleep(0.02)

    def _ask(self) -> None:
        began = time.monotonic()
        try:
            with urllib.request.urlopen(self._url, timeout=self._patience) as answer:  # noqa: S310 - of the test
                self.answers[answer.read().decode()] += 1
        except OSError as error:
            self.errors.append({"after": round(began - self.started, 2), "error": str(error)})
        took = time.monotonic() - began
        self.slowest = max(self.slowest, took)
        self.slow += took > _SLOW_SECONDS


def main(url: str, threads: int, patience: float) -> None:
    load = RequestLoad(url, patience)
    running = [threading.Thread(target=load.run) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    seen = {
        "answers": load.answers,
        "errors": load.errors,
        "slowest": round(load.slowest, 2),
        "slow": load.slow,
    }
    print(json.dumps(seen))  # noqa: T201 - the result


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
