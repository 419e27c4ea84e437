"""When two values of a column are equal although they are not the same, as a pipeline declares it."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DecimalType, IntegralType, NumericType, StringType, StructType

from rewind.core.errors import RefusedError
from rewind.core.pipeline import INSTANT, TOLERANCE, UNORDERED, VOLATILE, ColumnRule

_NEEDS: dict[str, tuple[type[DataType], str]] = {
    TOLERANCE: (NumericType, "a number"),
    UNORDERED: (ArrayType, "an array"),
    INSTANT: (StringType, "a text"),
}
_FINER_THAN_MICROSECONDS = r"[.,][0-9]{7,}"


def check(rules: tuple[ColumnRule, ...], schema: StructType) -> None:
    """Check that each rule fits the output.

    Raises:
        RefusedError: It names no column, or one of a type that it is not for.
    """
    kinds = {field.name: field.dataType for field in schema.fields}
    for rule in rules:
        field, kind = f"compare.{rule.kind}", kinds.get(rule.column)
        if kind is None:
            raise RefusedError(field, f"transform() returns no {rule.column}", f"Its columns are {', '.join(kinds)}")
        needed = _NEEDS.get(rule.kind)
        if needed is not None and not isinstance(kind, needed[0]):
            problem = f"{rule.column} is {kind.simpleString()}, no {needed[1].partition(' ')[2]}"
            raise RefusedError(field, problem, f"The rule is for {needed[1]}")


def equal(rule: ColumnRule, live: Column, candidate: Column, kind: DataType) -> Column:
    """Return whether two values of a column are equal, null-safe.

    Args:
        rule: The column's. Without it they are, too, where they are the same: NaN is NaN, and -0.0 is 0.0.
        live: The one value.
        candidate: The other, of the same type.
        kind: That type.
    """
    if rule.kind == VOLATILE:
        return F.lit(True)
    if rule.kind == UNORDERED:
        return F.sort_array(live).eqNullSafe(F.sort_array(candidate))
    near = _one_instant(live, candidate) if rule.kind == INSTANT else _near(rule, live, candidate, kind)
    return live.eqNullSafe(candidate) | F.coalesce(near, F.lit(False))


def _near(rule: ColumnRule, live: Column, candidate: Column, kind: DataType) -> Column:
    # As doubles, whole numbers beyond 2^53 that differ would be one.
    exact = isinstance(kind, (IntegralType, DecimalType))
    numbers = [side.cast("decimal(38,0)") if isinstance(kind, IntegralType) else side for side in (live, candidate)]
    difference = F.abs(numbers[0] - numbers[1])
    difference = difference.cast("double") if exact else difference
    larger = F.greatest(*(F.abs(side.cast("double")) for side in (live, candidate)))
    bound = F.greatest(F.lit(rule.absolute), F.lit(rule.relative) * larger)
    # An infinity is near nothing but itself.
    return (difference <= bound) & (difference < F.lit(float("inf")))


def _one_instant(live: Column, candidate: Column) -> Column:
    # Spark would cut what is finer than it holds, and take two instants for one.
    held = [~side.rlike(_FINER_THAN_MICROSECONDS) for side in (live, candidate)]
    return held[0] & held[1] & (F.try_to_timestamp(live) == F.try_to_timestamp(candidate))
