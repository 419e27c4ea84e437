"""Drawn pairs of rows, equal or different in one place, through the comparison: no false pass, no false alarm."""

from __future__ import annotations

import base64
import functools
import json
import math
import random
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

from pyspark.sql import SparkSession

from rewind.core.offsets import OffsetRange
from rewind.transforms.comparing.compare import Sides, classified
from rewind.transforms.values import parsing
from tests.support import exact_draws
from tests.support.compared_rows import classes, located, row
from tests.support.exact_oracle import BITS, SPECIAL, Dead, expected, parsed

ZONE = "Europe/Paris"
EXACT = ("DECIMAL(5,2)", "DECIMAL(38,18)", "DECIMAL(38,0)", "DECIMAL(38,37)", "DECIMAL(10,0)")
NUMBERS = (*BITS, "FLOAT", "DOUBLE", *EXACT)
KINDS = (*(leaf for leaf in exact_draws.LEAVES if leaf not in NUMBERS), *NUMBERS)
FORMS: tuple[Callable[[Any], Any], ...] = (
    lambda leaf: leaf,
    lambda leaf: ("array", leaf),
    lambda leaf: ("struct", {"f.g": leaf, "h": "INT"}),
    lambda leaf: ("map", leaf),
    lambda leaf: ("map", ("array", ("struct", {"x": leaf, "y": "STRING"}))),
    lambda leaf: ("array", ("struct", {"m": ("map", leaf)})),
)
MOST_COLUMNS = 3
Text = Callable[[str, float], str]
"""Returns what is written for a number of FLOAT or DOUBLE."""


@dataclass(frozen=True)
class Column:
    """A column of both outputs, of one type or of two kinds of numbers."""

    name: str
    live: Any
    candidate: Any


@dataclass(frozen=True)
class Pair:
    """Two rows, and the columns in which they differ."""

    live: str
    candidate: str
    differing: tuple[str, ...]


def check(spark: SparkSession, pairs: int, seed: int) -> dict[str, int]:
    """Hold drawn pairs against the comparison, row by row and in its counts; count the equal and the different."""
    told: Counter[str] = Counter()
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    text = java_text(spark)
    rounds = [*(_of_one_type(form) for form in FORMS), _of_two_types(random.Random(f"{seed} kinds"))]
    for number, columns in enumerate(rounds):
        draw = random.Random(f"{seed} {number}")
        drawn = [_pair(columns, draw, text) for _ in range(-(-pairs // len(rounds)))]
        told.update(_held(spark, columns, drawn))
    return dict(told)


def _held(spark: SparkSession, columns: list[Column], pairs: list[Pair]) -> Counter[str]:
    schemas = [
        parsing.declared(", ".join(f"`{column.name}` {ddl(side(column))}" for column in columns))
        for side in (lambda column: column.live, lambda column: column.candidate)
    ]
    sides = Sides(schemas[0], schemas[1], ())
    live = [row(o, pair.live) for o, pair in enumerate(pairs)]
    candidate = [row(o, pair.candidate) for o, pair in enumerate(pairs)]
    found = classified(located(spark, live), located(spark, candidate), sides).select("o", "class", "fields").collect()
    assert len(found) == len(pairs)
    for one in found:
        pair = pairs[one["o"]]
        wanted = ("changed", sorted(pair.differing)) if pair.differing else ("equal", [])
        assert (one["class"], sorted(one["fields"])) == wanted, pair
    fields = Counter(name for pair in pairs for name in pair.differing)
    equal = sum(not pair.differing for pair in pairs)
    # The whole way, fingerprints first, tells the same.
    assert classes(spark, live, candidate, sides, {0: OffsetRange(0, len(pairs))}) == {
        "equal": equal,
        "changed": len(pairs) - equal,
        "fields": {"changed": dict(fields)},
    }
    return Counter({"equal": equal, "different": len(pairs) - equal})


def _of_one_type(form: Callable[[Any], Any]) -> list[Column]:
    return [Column(f"c.{n}", form(leaf), form(leaf)) for n, leaf in enumerate(KINDS)]


def _of_two_types(draw: random.Random) -> list[Column]:
    both = [(a, b) for a in (*NUMBERS, "STRING") for b in (*NUMBERS, "STRING") if a != b]
    forms = [draw.choice(FORMS[:3]) for _ in both]
    named = enumerate(zip(both, forms, strict=True))
    return draw.sample([Column(f"n{n}", form(a), form(b)) for n, ((a, b), form) in named], 24)


def _pair(columns: list[Column], draw: random.Random, text: Text) -> Pair:
    sides: tuple[dict[str, str], dict[str, str]] = ({}, {})
    differing = []
    for column in draw.sample(columns, draw.randint(1, MOST_COLUMNS)):
        live = _drawn(column.live, draw)
        other = live
        if draw.random() < 0.5 / MOST_COLUMNS:
            other = _changed(column.live, live, draw)
        candidate = _converted(column.live, column.candidate, other, draw)
        if not _same(column.live, column.candidate, live, candidate, text):
            differing.append(column.name)
        sides[0][column.name] = spelled(column.live, live, draw)
        sides[1][column.name] = spelled(column.candidate, candidate, draw)
    texts = [_object(side, draw) for side in sides]
    return Pair(texts[0], texts[1], tuple(differing))


def ddl(kind: Any) -> str:
    """Return a type in Spark's words."""
    if isinstance(kind, str):
        return kind
    name, of = kind
    if name == "struct":
        return f"STRUCT<{', '.join(f'`{field}`: {ddl(inner)}' for field, inner in of.items())}>"
    return f"ARRAY<{ddl(of)}>" if name == "array" else f"MAP<STRING, {ddl(of)}>"


def _drawn(kind: Any, draw: random.Random) -> Any:
    """Return a value as the oracle writes it."""
    if draw.random() < 0.08:
        return None
    if isinstance(kind, str):
        return next(_sound(kind, draw))
    name, of = kind
    if name == "array":
        return [_drawn(of, draw) for _ in range(draw.randrange(4))]
    if name == "map":
        return {draw.choice(("a", "b", "", "é", "a.b", "0")): _drawn(of, draw) for _ in range(draw.randrange(4))}
    return {field: _drawn(inner, draw) for field, inner in of.items()}


def _sound(kind: str, draw: random.Random) -> Iterator[Any]:
    while True:
        try:
            found = expected(kind, parsed(exact_draws.of(kind, draw)), ZONE)
        except Dead:
            continue
        if found is not None:
            yield found


def _changed(kind: Any, value: Any, draw: random.Random) -> Any:
    """Return a value that differs in one place, or now and then is drawn anew."""
    if value is None or isinstance(kind, str) or not value or draw.random() < 0.1:
        return next(_near(kind, value, draw))
    name, of = kind
    if name == "array":
        return _changed_array(of, value, draw)
    place = draw.choice(sorted(value))
    if name == "map" and draw.random() < 0.3:
        return {key: inner for key, inner in value.items() if key != place}
    inner = of if name == "map" else of[place]
    return {**value, place: _changed(inner, value[place], draw)}


def _changed_array(of: Any, value: list[Any], draw: random.Random) -> list[Any]:
    way, place = draw.randrange(4), draw.randrange(len(value))
    if way == 0:
        return value[:place] + value[place + 1 :]
    if way == 1:
        return [*value, None]
    if way == 2:
        return value[::-1]
    return [*value[:place], _changed(of, value[place], draw), *value[place + 1 :]]


def _near(kind: Any, value: Any, draw: random.Random) -> Iterator[Any]:
    """Yield values beside one: the smallest step of its type first, where it has one."""
    while True:
        if isinstance(kind, tuple):
            yield None if value is not None and draw.random() < 0.2 else _drawn(kind, draw)
        elif kind in BITS and value is not None and draw.random() < 0.5:
            yield value + (1 if value < 0 else -1)
        elif kind == "TIMESTAMP" and value is not None and draw.random() < 0.5:
            yield value + (1 if value < 10**15 else -1)
        elif kind in EXACT and value and draw.random() < 0.5:
            yield _step_of_a_decimal(value)
        else:
            yield None if value is not None and draw.random() < 0.2 else _drawn(kind, draw)


def _step_of_a_decimal(value: Decimal) -> Decimal:
    with localcontext() as exact:
        exact.prec = 80
        return value - Decimal(1).scaleb(int(value.as_tuple().exponent)).copy_sign(value)


def _converted(kind: Any, other: Any, value: Any, draw: random.Random) -> Any:
    """Return a value as one of another type: the same number where the type has it, else one that is near."""
    if kind == other or value is None:
        return value
    if isinstance(kind, tuple):
        name, of = kind
        if name == "array":
            return [_converted(of, other[1], inner, draw) for inner in value]
        return {field: _converted(of[field], other[1][field], inner, draw) for field, inner in value.items()}
    try:
        found = expected(other, parsed(_literal(kind, value)), ZONE)
    except Dead:
        found = None
    return next(_sound(other, draw)) if found is None else found


def _same(kind: Any, other: Any, left: Any, right: Any, text: Text) -> bool:
    if left is None or right is None:
        return left is right
    if isinstance(kind, str):
        return _same_leaf(kind, other, left, right, text)
    name, of = kind
    if len(left) != len(right):
        return False
    if name == "array":
        return all(_same(of, other[1], a, b, text) for a, b in zip(left, right, strict=True))
    kinds = (lambda _key: (of, other[1])) if name == "map" else (lambda key: (of[key], other[1][key]))
    return left.keys() == right.keys() and all(_same(*kinds(key), left[key], right[key], text) for key in left)


def _same_leaf(kind: str, other: str, left: Any, right: Any, text: Text) -> bool:
    if kind not in NUMBERS and other not in NUMBERS:
        return kind == other and bool(left == right)
    if kind not in NUMBERS or other not in NUMBERS:
        # The text "NaN" is written as that of a number is.
        return _literal(kind, left) == _literal(other, right)
    numbers = [_number(of, value, text) for of, value in ((kind, left), (other, right))]
    if all(isinstance(number, Fraction) for number in numbers):
        return numbers[0] == numbers[1]
    # NaN and infinities, which `repr` tells apart.
    return repr(numbers[0]) == repr(numbers[1])


def _number(kind: str, value: Any, text: Text) -> Fraction | float:
    """Return what the text of a number says."""
    if kind not in ("FLOAT", "DOUBLE"):
        return Fraction(value)
    number = float(value)
    return Fraction(text(kind, number)) if math.isfinite(number) else number


def java_text(spark: SparkSession) -> Text:
    """Return what Java writes for a FLOAT or a DOUBLE, which before Java 19 is not always the shortest text."""
    lang = spark._jvm.java.lang
    of = {"FLOAT": lang.Float, "DOUBLE": lang.Double}
    return functools.cache(lambda kind, number: of[kind].toString(of[kind].valueOf(repr(number))))


def spelled(kind: Any, value: Any, draw: random.Random) -> str:
    """Return a JSON text of a value, one of several."""
    if value is None:
        return "null"
    if isinstance(kind, str):
        return _leaf(kind, value, draw)
    name, of = kind
    if name == "array":
        return f"[{','.join(spelled(of, inner, draw) for inner in value)}]"
    kinds = dict.fromkeys(value, of) if name == "map" else of
    given = {key: spelled(kinds[key], inner, draw) for key, inner in value.items()}
    # A field of a struct that is null may be absent; a key of a map may not.
    return _object(given, draw, lacking=name == "struct")


def _object(given: dict[str, str], draw: random.Random, lacking: bool = True) -> str:
    pairs = [(name, text) for name, text in given.items() if not (lacking and text == "null" and draw.random() < 0.5)]
    draw.shuffle(pairs)
    return f"{{{','.join(f'{json.dumps(name)}:{text}' for name, text in pairs)}}}"


def _leaf(kind: str, value: Any, draw: random.Random) -> str:
    if kind == "TIMESTAMP":
        return _instant(value, draw)
    if kind == "STRING":
        return json.dumps(value, ensure_ascii=draw.random() < 0.5)
    if kind == "TIMESTAMP_NTZ":
        return json.dumps(value.isoformat(timespec="microseconds" if value.microsecond % 1000 else "milliseconds"))
    return _literal(kind, value)


def _literal(kind: str, value: Any) -> str:
    if isinstance(value, bytes):
        return json.dumps(base64.b64encode(value).decode())
    if isinstance(value, date):
        return json.dumps(value.isoformat())
    if isinstance(value, Decimal):
        return f"{value:f}"
    if kind in ("FLOAT", "DOUBLE"):
        return _floating(kind, float(value))
    return json.dumps(value)


def _floating(kind: str, number: float) -> str:
    if math.isfinite(number):
        # What a float's text is as a double would be another number.
        return repr(number) if kind == "DOUBLE" else repr(struct.unpack("f", struct.pack("f", number))[0])
    return json.dumps(next(word for word, special in SPECIAL.items() if repr(special) == repr(number)))


def _instant(micros: int, draw: random.Random) -> str:
    """Return the text of microseconds since the year 1, at an offset of which the calendar has its local time."""
    while True:
        minutes = draw.choice((0, 60, 120, -300, 345))
        try:
            local = datetime.min + timedelta(microseconds=micros, minutes=minutes)  # noqa: DTZ901
        except OverflowError:
            continue
        sign, (hours, rest) = ("-" if minutes < 0 else "+"), divmod(abs(minutes), 60)
        digits = "microseconds" if local.microsecond % 1000 or draw.random() < 0.3 else "milliseconds"
        return json.dumps(f"{local.isoformat(timespec=digits)}{sign}{hours:02d}:{rest:02d}")
