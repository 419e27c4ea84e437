"""JSON texts to typed values, without a value that differs from what the text says.

Spark's `from_json` stops behind the first value, fills a time without a date with today, wraps a number that is too
large for a TINYINT, and keeps a key of a map that stands twice. So the text is wrapped, which shows bytes behind the
object; instants are taken as texts and read by the rules of docs/values.md; and numbers are taken a size larger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from rewind.transforms.values import nesting

CORRUPT = "_corrupt"
_RECORDS, _END = "records", "end"
_REOPENS = r"\}\s*\]\s*,"
_TEXTS = (TimestampType, TimestampNTZType, DateType)
_TAKEN_AS: Mapping[type[DataType], DataType] = {
    **dict.fromkeys(_TEXTS, StringType()),
    ByteType: ShortType(),
    FloatType: DoubleType(),
}
_DATE = r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
_LOCAL = _DATE + r"([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6}0*)?)?)?"
_ZONE = r" ?(Z|UTC|[+-][0-9]{2}(:?[0-9]{2}(:[0-9]{2})?)?)"
# Spark reads no offset behind a time without seconds.
_ZONED = _DATE + r"[T ][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6}0*)?" + _ZONE
_HIGH, _LOW = r"\\u[dD][89abAB][0-9a-fA-F]{2}", r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPE = r"(?<!\\)(?:\\\\)*"
# An escape that names half a character: a high one without a low one behind it, or a low one without a high one.
_HALF = rf"{_ESCAPE}(?:{_HIGH}(?!{_LOW})|(?<!{_HIGH}){_LOW})"
# A number that no double holds.
_HUGE = r"[0-9][eE][+]?0*[1-9][0-9]{2}|[0-9]{300}"
_NUMBER = r"-?[0-9]+([.][0-9]+)?([eE][+-]?[0-9]+)?"
_GREATEST_FLOAT = 3.4028234663852886e38

Problem = tuple[Column, str]
"""Whether a value is none of its type, and what to say then."""


def half_a_character(text: Column) -> Column:
    """Return whether a JSON text names half of a surrogate pair, which no UTF-8 text can hold."""
    return F.contains(text, F.lit("\\u")) & text.rlike(_HALF)


def read(text: Column, schema: StructType) -> Column:
    """Return what `from_json` makes of a text that was wrapped: for `sound` and `record`.

    Bytes behind the object break the wrapping, add to its list, or close it before its end. To close the list and open
    another they need a bracket and a comma behind a brace; texts with those are wrapped in a map, which costs more.
    """
    inner, options = ArrayType(_shape(schema)), {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    listed = StructType(
        [StructField(_RECORDS, inner), StructField(_END, BooleanType()), StructField(CORRUPT, StringType())]
    )
    plain = F.from_json(F.concat(F.lit(f'{{"{_RECORDS}":['), text, F.lit(f'],"{_END}":true}}')), listed, options)
    # No text holds its own hash.
    mark = F.xxhash64(text).cast("string")
    mapped = StructType([StructField(_RECORDS, MapType(StringType(), inner)), StructField(CORRUPT, StringType())])
    entries = F.from_json(
        F.concat(F.lit(f'{{"{_RECORDS}":{{"{_RECORDS}":['), text, F.lit('],"'), mark, F.lit('":[]}}')), mapped, options
    )
    keys = F.map_keys(entries[_RECORDS])
    whole = F.struct(
        F.get(F.map_values(entries[_RECORDS]), F.lit(0)).alias(_RECORDS),
        ((F.size(keys) == 2) & (F.get(keys, F.lit(1)) == mark)).alias(_END),
        entries[CORRUPT].alias(CORRUPT),
    )
    # The pattern is dear, and most texts have no list at all.
    return F.when(F.contains(text, F.lit("]")) & text.rlike(_REOPENS), whole).otherwise(plain)


def sound(parsed: Column) -> Column:
    """Return whether a text was one JSON object and nothing else, all of its values of about their types."""
    one = (F.size(parsed[_RECORDS]) == 1) & parsed[_END] & parsed[CORRUPT].isNull()
    return F.coalesce(one, F.lit(False))


def record(parsed: Column) -> Column:
    """Return the struct of what was read."""
    return F.get(parsed[_RECORDS], F.lit(0))


def value(read_as: Column, kind: DataType) -> Column:
    """Return what was read as a value of its type; null where `problems` finds one."""
    return nesting.rebuilt(read_as, kind, lambda inner: type(inner) in _TAKEN_AS, _of_its_type)


def _of_its_type(read_as: Column, kind: DataType) -> Column:
    if isinstance(kind, ByteType):
        return read_as.try_cast("tinyint")
    return read_as.cast("float") if isinstance(kind, FloatType) else _instant(read_as, kind)


def problems(read_as: Column, kind: DataType, path: str, text: Column, made: Column | None = None) -> Iterator[Problem]:
    """Return what may be wrong with a value, each as a condition and its words.

    Args:
        read_as: What was read (`read`).
        kind: The declared type.
        path: Name of the field.
        text: The whole record.
        made: The value (`value`), where it is at hand.
    """
    if isinstance(kind, StructType):
        for field in kind.fields:
            name = f"{path}.{field.name}" if path else field.name
            yield from of_field(read_as[field.name], field, name, text, there=read_as.isNotNull())
    elif isinstance(kind, ArrayType):
        yield from _within(read_as, kind.elementType, kind.containsNull, f"{path}[]", text)
    elif isinstance(kind, MapType):
        keys = F.map_keys(read_as)
        yield F.size(F.array_distinct(keys)) != F.size(keys), f"{path} holds a key twice"
        yield from _within(F.map_values(read_as), kind.valueType, kind.valueContainsNull, f"{path}{{}}", text)
    else:
        yield from _of_leaf(read_as, kind, path, text, value(read_as, kind) if made is None else made)


def of_field(
    read_as: Column, field: StructField, name: str, text: Column, there: Column, made: Column | None = None
) -> Iterator[Problem]:
    """Return what may be wrong with a field of a struct; `there` says whether the struct is."""
    if not field.nullable:
        yield there & read_as.isNull(), f"{name} is missing"
    yield from problems(read_as, field.dataType, name, text, made)


def _within(elements: Column, kind: DataType, nullable: bool, path: str, text: Column) -> Iterator[Problem]:
    """Return the problems of the elements of an array: any one of them."""
    if not nullable:
        yield F.exists(elements, lambda element: element.isNull()), f"{path} is missing"
    for number, (_, words) in enumerate(problems(F.lit(None), kind, path, text)):
        yield F.exists(elements, _nth(kind, path, text, number)), words


def _nth(kind: DataType, path: str, text: Column, number: int) -> Callable[[Column], Column]:
    def wrong(element: Column) -> Column:
        return F.coalesce(list(problems(element, kind, path, text))[number][0], F.lit(False))

    return wrong


def _of_leaf(read_as: Column, kind: DataType, path: str, text: Column, made: Column) -> Iterator[Problem]:
    there = read_as.isNotNull()
    if isinstance(kind, _TEXTS):
        told = "date" if isinstance(kind, DateType) else "instant"
        yield there & made.isNull(), f"{path} is no {told}"
    elif isinstance(kind, ByteType):
        yield (read_as < -128) | (read_as > 127), f"{path} is beyond TINYINT"
    elif isinstance(kind, (FloatType, DoubleType)):
        infinite = F.abs(read_as) == F.lit(float("inf"))
        beyond = infinite & text.rlike(_HUGE)
        if isinstance(kind, FloatType):
            finite = F.abs(read_as) < F.lit(float("inf"))
            beyond = beyond | (finite & (F.abs(read_as.cast("float")) == F.lit(float("inf")).cast("float")))
        yield there & beyond, f"{path} is beyond {kind.typeName().upper()}"
    elif isinstance(kind, StringType):
        # A number that is taken as a text went through a double. Two comparisons spare most texts the pattern.
        maybe = (read_as >= '"') & (read_as < ":")
        changed = read_as.rlike(rf"^({_NUMBER}|\"-?Infinity\")$") & ~F.contains(text, read_as)
        yield maybe & changed, f"{path} is a number that would not be written as it was"


def _instant(text: Column, kind: DataType) -> Column:
    """Return the instant of a text, null where it is none.

    None are a time that a clock skips, a year beyond 9999, and what Spark would take for one: digits, a time of today,
    a year alone, garbage behind a date.
    """
    if isinstance(kind, DateType):
        return F.when(text.rlike(f"^{_DATE}$"), text.try_cast("date"))
    local = text.try_cast("timestamp_ntz")
    if isinstance(kind, TimestampNTZType):
        return F.when(text.rlike(f"^{_LOCAL}$"), local)
    # The clock of the session's zone may have skipped a local time: Spark would move it.
    placed = local.cast("timestamp")
    stays = F.when(placed.cast("timestamp_ntz") == local, placed)
    zoned = text.try_cast("timestamp")
    told = F.when(text.rlike(f"^{_ZONED}$") & F.year(zoned).between(1, 9999), zoned)
    return F.when(text.rlike(f"^{_LOCAL}$"), stays).otherwise(told)


def _shape(kind: StructType) -> StructType:
    return StructType([StructField(f.name, _taken_as(f.dataType)) for f in kind.fields])


def _taken_as(kind: DataType) -> DataType:
    """Return the type that `from_json` is asked for: with the declared one it would change values."""
    if isinstance(kind, StructType):
        return _shape(kind)
    if isinstance(kind, ArrayType):
        return ArrayType(_taken_as(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, _taken_as(kind.valueType))
    return _TAKEN_AS.get(type(kind), kind)


def first_problem(found: list[Problem]) -> Column:
    """Return the words of the first problem that a record has, else null.

    One flat `coalesce`: where they stand within each other Spark looks for common parts twice a level, and the time to
    compile it doubles with each column.
    """
    return F.coalesce(F.lit(None).cast("string"), *(F.when(wrong, words) for wrong, words in found))
