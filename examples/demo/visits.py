"""What the demo plants in its source topic: record `n` is a function of a seed and `n` alone.

So a verifier knows of each record, from its sequence number, what it must be and what must become of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

SEED = 20250904
PARTITIONS = 3
SEQUENCE = "demo-sequence"
"""Header of a source record: its sequence number as decimal text."""

GOOD, REPEAT, TOMBSTONE = "good", "repeat", "tombstone"
NOT_JSON, TRUNCATED, WRONG_TYPE, EMPTY, NOT_UTF8, LACKING = (
    "not JSON",
    "truncated",
    "wrong type",
    "empty",
    "not UTF-8",
    "lacking",
)
BAD = (NOT_JSON, TRUNCATED, WRONG_TYPE, EMPTY, NOT_UTF8, LACKING)

TOUCHED_PERCENT = 7
PAGES = ("Home", "Index", "Contact", "Basket", "Über uns", "Search?q=A&b", 'The "Shop"')

_VISITORS = 5_000
_START = datetime(2025, 9, 4, 7)  # noqa: DTZ001 - the events say no zone; the pipeline's session zone reads them
_STEP = timedelta(milliseconds=100)
_MASK = (1 << 64) - 1
# Of 1,000 records: the kinds other than good, with the upper end of each share.
_SHARES = (
    (10, TOMBSTONE),
    (15, NOT_JSON),
    (20, TRUNCATED),
    (25, WRONG_TYPE),
    (30, EMPTY),
    (35, NOT_UTF8),
    (40, LACKING),
    (70, REPEAT),
)
_PAST_DOUBLES = 2**53 + 1
"""Some visit ids lie beyond what a double holds, so that a detour through one would show."""


@dataclass(frozen=True, slots=True)
class Event:
    """One visit as a website reports it.

    Attributes:
        number: Number in its id, the same in a repeat.
        visit_id: Id of the visit.
        time: Local time, to the millisecond.
        page: Page, with capital letters.
    """

    number: int
    visit_id: int
    time: datetime
    page: str

    @property
    def id(self) -> str:
        """Id of the event."""
        return f"visit-{self.number}"

    def body(self) -> dict[str, object]:
        """Return the fields of the source record."""
        text = self.time.isoformat(timespec="microseconds")
        return {"event_id": self.id, "visit_id": self.visit_id, "event_time": text, "page": self.page}


@dataclass(frozen=True, slots=True)
class Planted:
    """One source record.

    Attributes:
        sequence: Its sequence number.
        kind: good, repeat, tombstone, or one of `BAD`.
        partition: Source partition.
        key: Its key.
        value: Its value.
        event: The event of a good record or a repeat.
    """

    sequence: int
    kind: str
    partition: int
    key: bytes | None
    value: bytes | None
    event: Event | None


def touched(number: int) -> bool:
    """Return whether the bug touches the event of a number."""
    return number % 100 < TOUCHED_PERCENT


def kind_of(seed: int, sequence: int) -> str:
    """Return the kind of a record."""
    drawn = _draw(seed, sequence, 0) % 1_000
    return next((kind for end, kind in _SHARES if drawn < end), GOOD)


def planted(seed: int, sequence: int) -> Planted:
    """Return one record."""
    kind = kind_of(seed, sequence)
    source = _repeated(seed, sequence) if kind == REPEAT else sequence
    event = event_of(seed, source)
    visitor = _visitor(seed, source)
    keyless = kind != TOMBSTONE and _draw(seed, source, 2) % 50 == 0
    partition = source % PARTITIONS if keyless else visitor % PARTITIONS
    key = None if keyless else f"visitor-{visitor}".encode()
    value = _value(kind, event)
    return Planted(sequence, kind, partition, key, value, event if kind in (GOOD, REPEAT) else None)


def many(seed: int, first: int, count: int) -> Iterator[Planted]:
    """Return records `first` to `first + count - 1`, in order."""
    return (planted(seed, sequence) for sequence in range(first, first + count))


def event_of(seed: int, number: int) -> Event:
    """Return the event of a number."""
    visitor = _visitor(seed, number)
    late = _draw(seed, number, 3)
    # A tenth of the events arrives up to ten minutes late.
    delay = timedelta(seconds=late // 10 % 600) if late % 10 == 0 else timedelta()
    visit_id = _PAST_DOUBLES + visitor if visitor % 10 == 0 else visitor
    page = PAGES[_draw(seed, number, 4) % len(PAGES)]
    return Event(number, visit_id, _START + number * _STEP - delay, page)


def _value(kind: str, event: Event) -> bytes | None:
    if kind == TOMBSTONE:
        return None
    if kind == EMPTY:
        return b""
    if kind == NOT_JSON:
        return f"GET /{event.page} by {event.id}".encode()
    body = event.body()
    if kind == WRONG_TYPE:
        body["visit_id"] = "a-word"
    if kind == LACKING:
        del body["event_id"]
    text = json.dumps(body, ensure_ascii=False).encode()
    if kind == TRUNCATED:
        return text[:-3]
    # Within the text of a field, where a lenient decoder would let it pass with another character.
    return text[:-2] + b'\xff\xfe"}' if kind == NOT_UTF8 else text


def _repeated(seed: int, sequence: int) -> int:
    back = max(0, sequence - 1 - _draw(seed, sequence, 5) % 200)
    earlier = (number for number in range(back, -1, -1) if kind_of(seed, number) == GOOD)
    return next(earlier, next(n for n in range(sequence + 1, sequence + 1_000) if kind_of(seed, n) == GOOD))


def _visitor(seed: int, number: int) -> int:
    return _draw(seed, number, 1) % _VISITORS + 1


def _draw(seed: int, number: int, which: int) -> int:
    """Return 64 well mixed bits (splitmix64, https://prng.di.unimi.it/splitmix64.c)."""
    z = (seed * 0x9E3779B97F4A7C15 + number * 8 + which + 1) * 0x9E3779B97F4A7C15 & _MASK
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & _MASK
    return z ^ (z >> 31)
