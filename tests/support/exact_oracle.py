"""What a JSON value must become by docs/values.md, told in plain Python: it shares no code with the product.

A declared type is a name ("BIGINT"), or ("array", of), ("map", of), ("struct", {name: of}).
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from typing import Any
from zoneinfo import ZoneInfo


class Dead(Exception):  # noqa: N818 - a verdict, no error
    """A record with this value is a dead letter."""


@dataclass(frozen=True)
class Number:
    """A number of JSON as it was written."""

    text: str


class Twice(list[tuple[str, Any]]):
    """An object of JSON as its pairs."""


MICROSECOND, DAY = timedelta(microseconds=1), timedelta(days=1)
BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
SPECIAL = {
    "NaN": math.nan,
    "Infinity": math.inf,
    "+INF": math.inf,
    "+Infinity": math.inf,
    "-Infinity": -math.inf,
    "-INF": -math.inf,
}


def parsed(text: str) -> Any:
    """Return a JSON text with its numbers as they were written and its objects as pairs."""
    return json.loads(text, parse_int=Number, parse_float=Number, object_pairs_hook=Twice)


def expected(kind: Any, value: Any, zone: str) -> Any:
    """Return a value as it must come out, comparable by `==` with `came_out`; raise `Dead` where none may."""
    if value is None:
        return None
    if isinstance(kind, tuple):
        return _nested(kind, value, zone)
    return _LEAVES[kind.partition("(")[0]](kind, value, zone)


def came_out(kind: Any, value: Any) -> Any:
    """Return a value of the output's JSON in the same form."""
    if value is None:
        return None
    if isinstance(kind, tuple):
        name, of = kind
        if name == "array":
            return [came_out(of, element) for element in value]
        if name == "map":
            return {k: came_out(of, v) for k, v in value}
        given = dict(value)
        return {k: came_out(of[k], given.get(k)) for k in of}
    return _OUT[kind.partition("(")[0]](value)


def _nested(kind: tuple[str, Any], value: Any, zone: str) -> Any:
    name, of = kind
    if name == "array":
        if not isinstance(value, list) or isinstance(value, Twice):
            raise Dead
        return [expected(of, element, zone) for element in value]
    if not isinstance(value, Twice):
        raise Dead
    if name == "map":
        if len({k for k, _ in value}) != len(value):
            raise Dead
        return {k: expected(of, v, zone) for k, v in value}
    given = dict(value)
    return {k: expected(of[k], given.get(k), zone) for k in of}


def _boolean(_kind: str, value: Any, _zone: str) -> Any:
    if not isinstance(value, bool):
        raise Dead
    return value


def _integer(kind: str, value: Any, _zone: str) -> Any:
    if not isinstance(value, Number) or not value.text.lstrip("-").isdigit():
        raise Dead
    number, half = int(value.text), 1 << (BITS[kind] - 1)
    if not -half <= number < half:
        raise Dead
    return number


def _floating(kind: str, value: Any, _zone: str) -> Any:
    if isinstance(value, str) and value in SPECIAL:
        return _token(SPECIAL[value])
    if not isinstance(value, Number):
        raise Dead
    number = float(value.text)
    if kind == "FLOAT" and math.isfinite(number):
        try:
            number = struct.unpack("f", struct.pack("f", number))[0]
        except OverflowError:
            raise Dead from None
    if math.isinf(number):
        raise Dead
    return _token(number)


def _token(number: float) -> str:
    return repr(number)


def _decimal(kind: str, value: Any, _zone: str) -> Any:
    precision, scale = (int(part) for part in kind[len("DECIMAL(") : -1].split(","))
    text = value.text if isinstance(value, Number) else value
    if not isinstance(text, str) or isinstance(value, bool):
        raise Dead
    with localcontext() as exact:
        exact.prec = 500
        try:
            number = Decimal(text).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
        except InvalidOperation:
            raise Dead from None
    if not number.is_finite() or (
        len(number.as_tuple().digits) > precision and abs(number) >= Decimal(10) ** (precision - scale)
    ):
        raise Dead
    return number


def _text(_kind: str, value: Any, _zone: str) -> Any:
    if isinstance(value, str):
        if any(0xD800 <= ord(c) <= 0xDFFF for c in value):
            raise Dead
        return value
    if isinstance(value, Number):
        return value.text
    # Of objects and arrays only empty ones are drawn: how others are spaced is no matter of values.
    return "{}" if isinstance(value, Twice) else json.dumps(value)


def _bytes(_kind: str, value: Any, _zone: str) -> Any:
    if not isinstance(value, str):
        raise Dead
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error:
        raise Dead from None


def _date(_kind: str, value: Any, _zone: str) -> Any:
    if not isinstance(value, str) or len(value) != 10:
        raise Dead
    try:
        return date.fromisoformat(value)
    except ValueError:
        raise Dead from None


def _local(_kind: str, value: Any, _zone: str) -> Any:
    local, offset = _clock(value)
    if offset is not None:
        raise Dead
    return local


def _instant(_kind: str, value: Any, zone: str) -> Any:
    """Return the microseconds since the year 1."""
    local, offset = _clock(value)
    there = ZoneInfo(zone)
    if offset is None:
        first, second = (there.utcoffset(local.replace(fold=fold)) for fold in (0, 1))
        assert first is not None
        assert second is not None
        if first < second:
            raise Dead  # The clock skips it (PEP 495).
        return _micros(local) - first // MICROSECOND
    instant = _micros(local) - offset // MICROSECOND
    # Near both ends of the calendar a zone has one offset for days.
    near = datetime.min + min(max(instant * MICROSECOND, DAY), datetime.max - datetime.min - DAY)  # noqa: DTZ901
    shown = instant + (there.utcoffset(near.replace(tzinfo=UTC).astimezone(there)) or timedelta(0)) // MICROSECOND
    if not 0 <= shown <= _micros(datetime.max):  # noqa: DTZ901
        raise Dead
    return instant


def _micros(local: datetime) -> int:
    return (local - datetime.min) // MICROSECOND  # noqa: DTZ901 - both are local


def _clock(value: Any) -> tuple[datetime, timedelta | None]:
    """Return the local time and the offset of a text, character by character."""
    if not isinstance(value, str):
        raise Dead
    day, rest = value[:10], value[10:]
    made, clock, offset = _date("DATE", day, ""), "00:00:00", None
    if rest:
        if rest[0] not in "T ":
            raise Dead
        clock, offset = _split(rest[1:])
        if offset is not None and clock.count(":") != 2:
            raise Dead
    return _at(made, clock), offset


def _split(text: str) -> tuple[str, timedelta | None]:
    for word in ("Z", "UTC"):
        if text.endswith(word):
            return text[: -len(word)].removesuffix(" "), timedelta(0)
    places = [n for n, c in enumerate(text) if c in "+-"]
    if not places:
        return text, None
    (place,) = places if len(places) == 1 else (None,)
    if place is None:
        raise Dead
    sign, digits = (1 if text[place] == "+" else -1), text[place + 1 :]
    parts = digits.split(":") if ":" in digits else [digits[:2], *([digits[2:]] if digits[2:] else [])]
    if not all(len(part) == 2 and part.isdigit() for part in parts) or len(parts) > 3:
        raise Dead
    hours, minutes, seconds = (*(int(part) for part in parts), 0, 0)[:3]
    if hours > 18 or minutes > 59 or seconds > 59 or (hours == 18 and minutes + seconds):
        raise Dead
    return text[:place].removesuffix(" "), sign * timedelta(hours=hours, minutes=minutes, seconds=seconds)


def _at(day: date, clock: str) -> datetime:
    whole, point, fraction = clock.partition(".")
    parts = whole.split(":")
    if point and (len(parts) != 3 or not fraction.isdigit() or fraction[6:].strip("0")):
        raise Dead
    if len(parts) not in (2, 3) or not all(len(part) == 2 and part.isdigit() for part in parts):
        raise Dead
    hours, minutes, seconds = (*(int(part) for part in parts), 0)[:3]
    if hours > 23 or minutes > 59 or seconds > 59:
        raise Dead
    return datetime(day.year, day.month, day.day, hours, minutes, seconds, int(fraction[:6].ljust(6, "0") or 0))  # noqa: DTZ001 - it has no zone


def _out_instant(value: str) -> int:
    made = datetime.fromisoformat(value)
    offset = made.utcoffset()
    assert offset is not None
    return _micros(made.replace(tzinfo=None)) - offset // MICROSECOND


_LEAVES: Mapping[str, Callable[[str, Any, str], Any]] = {
    "BOOLEAN": _boolean,
    **dict.fromkeys(BITS, _integer),
    "FLOAT": _floating,
    "DOUBLE": _floating,
    "DECIMAL": _decimal,
    "STRING": _text,
    "BINARY": _bytes,
    "DATE": _date,
    "TIMESTAMP": _instant,
    "TIMESTAMP_NTZ": _local,
}
_OUT: Mapping[str, Callable[[Any], Any]] = {
    "BOOLEAN": lambda value: value,
    **dict.fromkeys(BITS, lambda value: int(value.text)),
    "FLOAT": lambda value: _token(
        SPECIAL[value] if isinstance(value, str) else struct.unpack("f", struct.pack("f", float(value.text)))[0]
    ),
    "DOUBLE": lambda value: _token(SPECIAL[value] if isinstance(value, str) else float(value.text)),
    "DECIMAL": lambda value: Decimal(value.text),
    "STRING": lambda value: value,
    "BINARY": base64.b64decode,
    "DATE": date.fromisoformat,
    "TIMESTAMP": _out_instant,
    "TIMESTAMP_NTZ": datetime.fromisoformat,
}
