"""JSON values drawn for each type that a schema may hold: least, greatest, one beyond, and what only looks like one."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Mapping
from datetime import date, timedelta

from tests.support.exact_oracle import BITS

LEAVES = (
    "BOOLEAN",
    *BITS,
    "FLOAT",
    "DOUBLE",
    "DECIMAL(5,2)",
    "DECIMAL(38,18)",
    "STRING",
    "BINARY",
    "DATE",
    "TIMESTAMP",
    "TIMESTAMP_NTZ",
)
OTHERS = ("true", "0", "1.5", '"x"', '""', "[]", "{}", '"2025"', "1757000000000", '"1757000000000"', '"07:00:00"')
TEXTS = ("", "null", "Infinity", 'a"b\\c', "\u0000\t", "Über uns", "😀", "}{", '"}],"', "\\ud800", "{}")
TIMES = (
    "00:00",
    "07:00:00",
    "23:59:59.999999",
    "07:00:00.7",
    "07:00:00.789123",
    "07:00:00.1234567",
    "07:00:00.123456000",
)
TIMES_OFF = ("24:00:00", "23:59:60", "7:00", "07:00:00.", "07", "07:00:00,5", "garbage")
ZONES = ("Z", "+02:00", "-0500", "+14", " UTC", "-18:00", "+00:09:21", "+25:00", "[Europe/Paris]", "+2")
# Around the changes of the clock in Paris and in New York, and at both ends of the calendar.
DAYS = ("2025-03-30", "2025-10-26", "2025-03-09", "2025-11-02", "0001-01-01", "9999-12-31", "2024-02-29", "2025-02-29")
DAYS_OFF = ("0000-01-01", "10000-01-01", "20250904", "2025-9-4", "2025-13-01", "+2025-01-01")


def of(kind: str, draw: random.Random) -> str:
    """Return the JSON text of a value for a type, now and then one that is none of it."""
    if draw.random() < 0.12:
        return "null" if draw.random() < 0.3 else draw.choice(OTHERS)
    return _DRAWN[kind.partition("(")[0]](kind, draw)


def _boolean(_kind: str, draw: random.Random) -> str:
    return draw.choice(("true", "false"))


def _integer(kind: str, draw: random.Random) -> str:
    half = 1 << (BITS[kind] - 1)
    edges = (-half, half - 1, -half - 1, half, 2 * half - 1, 0, -1)
    return str(draw.choice(edges) if draw.random() < 0.5 else draw.randrange(-half, half))


def _floating(_kind: str, draw: random.Random) -> str:
    edges = (
        "-0.0",
        "0",
        "1e39",
        "-1e39",
        "1e400",
        "-1e400",
        "3.4028235e38",
        "1.7976931348623157e308",
        "1.4e-45",
        "5e-324",
    )
    words = ("16777217", "9007199254740993", '"NaN"', '"Infinity"', '"-Infinity"', '"INF"', '"1.5"', "1E5")
    return draw.choice(edges + words) if draw.random() < 0.6 else repr(draw.uniform(-1e6, 1e6))


def _decimal(kind: str, draw: random.Random) -> str:
    precision, scale = (int(part) for part in kind[len("DECIMAL(") : -1].split(","))
    greatest = ("9" * (precision - scale) or "0") + "." + ("9" * scale or "0")
    edges = (
        greatest,
        f"-{greatest}",
        greatest + "5",
        greatest + "4",
        "1" + "0" * (precision - scale),
        "1.239",
        "1.235",
        '"1.5"',
        "0.0",
        "1e2",
    )
    if draw.random() < 0.6:
        return draw.choice(edges)
    return f"{draw.randrange(10 ** (precision - scale))}.{draw.randrange(10**scale):0{scale}d}"


def _text(_kind: str, draw: random.Random) -> str:
    if draw.random() < 0.15:
        return draw.choice((r'"\ud800"', r'"\ude00"', r'"\ud83d\ude00"', r'"\\ud800"', r'"\ud83dx"', "12345", "true"))
    return json.dumps(draw.choice(TEXTS) + str(draw.random()), ensure_ascii=draw.random() < 0.5)


def _bytes(_kind: str, draw: random.Random) -> str:
    return json.dumps(base64.b64encode(draw.randbytes(draw.randrange(9))).decode()) if draw.random() < 0.9 else '"*"'


def _day(draw: random.Random) -> str:
    if draw.random() < 0.5:
        return draw.choice(DAYS + DAYS_OFF)
    return (date(1970, 1, 1) + timedelta(days=draw.randrange(25_000))).isoformat()


def _date(_kind: str, draw: random.Random) -> str:
    return json.dumps(_day(draw) + draw.choice(("", "", "", "T07:00", "Tgarbage", " ")))


def _clock(kind: str, draw: random.Random) -> str:
    if draw.random() < 0.08:
        return json.dumps(_day(draw))
    drawn = f"{draw.randrange(24):02d}:{draw.randrange(60):02d}:{draw.randrange(60):02d}.{draw.randrange(10**6):06d}"
    gap = f"02:{draw.randrange(60):02d}"
    time = draw.choice((drawn, drawn, gap, draw.choice(TIMES), draw.choice(TIMES), draw.choice(TIMES_OFF)))
    zoned = draw.random() < (0.5 if kind == "TIMESTAMP" else 0.1)
    return json.dumps(_day(draw) + draw.choice("TTT ") + time + (draw.choice(ZONES) if zoned else ""))


_DRAWN: Mapping[str, Callable[[str, random.Random], str]] = {
    "BOOLEAN": _boolean,
    **dict.fromkeys(BITS, _integer),
    "FLOAT": _floating,
    "DOUBLE": _floating,
    "DECIMAL": _decimal,
    "STRING": _text,
    "BINARY": _bytes,
    "DATE": _date,
    "TIMESTAMP": _clock,
    "TIMESTAMP_NTZ": _clock,
}
