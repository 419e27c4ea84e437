"""The demo's producer, a process of its own: a history at full speed, then a steady flow until it is told to stop.

Its state file says how far it has come; together with the seed that is the whole log of what was planted.
"""

from __future__ import annotations

import argparse
import json
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from examples.demo import visits

BEAT_SECONDS = 0.1
SAVE_SECONDS = 0.5


@dataclass(frozen=True)
class Progress:
    """How far the producer has come.

    Attributes:
        seed: Seed of the records.
        stored: Records that the broker has confirmed; they are those with sequence numbers below this.
        history: Records of the history.
        history_seconds: How long the history took; None while it is being written.
        rate: Records a second afterwards.
        slowest: Lowest number of records in a whole second of the steady flow; None before the first.
        ended: Whether it has ended in order.
    """

    seed: int
    stored: int
    history: int
    history_seconds: float | None
    rate: int
    slowest: int | None
    ended: bool


def read(path: Path) -> Progress | None:
    """Return how far the producer of a state file has come, None before it has written any."""
    return Progress(**json.loads(path.read_text())) if path.is_file() else None


class Producer:
    """One producing process."""

    def __init__(self, client: Any, topic: str, state: Path, progress: Progress) -> None:
        """Keep the parts; nothing is sent yet."""
        self._client, self._topic, self._state = client, topic, state
        self._progress = progress
        self._sent = 0
        self._failed: BaseException | None = None
        self._stop = False
        signal.signal(signal.SIGTERM, self._on_signal)

    def run(self) -> None:
        """Write the history, then the steady flow until SIGTERM."""
        begun = time.monotonic()
        self._send(self._progress.history)
        self._save(history_seconds=round(time.monotonic() - begun, 2))
        self._flow()
        self._save(ended=True)

    def _flow(self) -> None:
        begun, first, second, in_second = time.monotonic(), self._sent, 0, 0
        while not self._stop:
            time.sleep(BEAT_SECONDS)
            elapsed = time.monotonic() - begun
            due = int(elapsed * self._progress.rate) - (self._sent - first)
            self._send(due)
            in_second += due
            if int(elapsed) > second:
                slowest = min(in_second, self._progress.slowest if self._progress.slowest is not None else in_second)
                second, in_second = int(elapsed), 0
                self._save(slowest=slowest)

    def _send(self, count: int) -> None:
        for record in visits.many(self._progress.seed, self._sent, count):
            header = (visits.SEQUENCE, str(record.sequence).encode())
            sending = self._client.send(
                self._topic, record.value, record.key, headers=[header], partition=record.partition
            )
            sending.add_errback(self._on_error)
        self._sent += count

    def _save(self, **changes: Any) -> None:
        self._client.flush()
        if self._failed is not None:
            raise self._failed
        self._progress = Progress(**{**asdict(self._progress), "stored": self._sent, **changes})
        draft = self._state.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(self._progress)))
        draft.replace(self._state)

    def _on_error(self, error: BaseException) -> None:
        self._failed = error

    def _on_signal(self, *_: Any) -> None:
        self._stop = True


def main() -> None:
    """Run the producer that the command line describes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=visits.SEED)
    parser.add_argument("--history", type=int, required=True)
    parser.add_argument("--rate", type=int, required=True)
    given = parser.parse_args()
    progress = Progress(given.seed, 0, given.history, None, given.rate, None, False)
    client = _client(given.bootstrap)
    Producer(client, given.topic, given.state, progress).run()
    client.close()


def _client(bootstrap: str) -> Any:
    from kafka import KafkaProducer
    from kafka.codec import has_lz4, has_zstd

    # Compressed batches cost less than they save: the client's checksum is pure Python.
    codec = "lz4" if has_lz4() else "zstd" if has_zstd() else "gzip"
    return KafkaProducer(
        bootstrap_servers=bootstrap, acks="all", linger_ms=100, batch_size=262_144, compression_type=codec
    )


if __name__ == "__main__":
    main()
