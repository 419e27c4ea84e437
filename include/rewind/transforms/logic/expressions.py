"""Expressions that answer from one record alone, and always the same: by their classes in Spark."""

from __future__ import annotations

import re
from collections.abc import Collection

from pyspark.sql.types import DataType, DateType, StringType, TimestampNTZType, TimestampType, VariantType

from rewind.transforms.logic.plans import CASTS, PARSERS, Expression
from rewind.transforms.values import nesting

_ROW_WISE = """
Alias AttributeReference Cast Literal TypedNullLiteral
KnownNotNull KnownNullable PreciseTimestampConversion ResolvedCollation
CommonExpressionDef CommonExpressionRef With TryEval
And Between EqualNull EqualNullSafe EqualTo GreaterThan GreaterThanOrEqual ILike In InSet IsNaN IsNotNull IsNull
LessThan LessThanOrEqual Like LikeAll LikeAny Not NotLikeAll NotLikeAny Or RLike
AtLeastNNonNulls CaseWhen Coalesce If NaNvl NullIf NullIfZero Nvl Nvl2 ZeroIfNull
AssertTrue RaiseError TypeOf
Abs Acos Acosh Add Asin Asinh Atan Atan2 Atanh BRound Bin Cbrt Ceil Conv Cos Cosh Cot Csc Divide EulerNumber Exp
Expm1 Factorial Floor Greatest Hypot IntegralDivide Least Log Log10 Log1p Log2 Logarithm Multiply Pi Pmod Pow
Remainder Rint Round RoundCeil RoundFloor Sec Signum Sin Sinh Sqrt Subtract Tan Tanh ToDegrees ToRadians TryAdd
TryDivide TryMod TryMultiply TrySubtract UnaryMinus UnaryPositive WidthBucket
BitmapBitPosition BitmapBucketNumber BitmapCount BitwiseAnd BitwiseCount BitwiseGet BitwiseNot BitwiseOr BitwiseXor
ShiftLeft ShiftRight ShiftRightUnsigned
Crc32 Md5 Murmur3Hash Sha1 Sha2 XxHash64 AesDecrypt TryAesDecrypt
Ascii Base64 BinaryPad BinaryPredicate BitLength Chr Collate Collation Concat ConcatWs Contains Decode Elt Encode
EndsWith FindInSet FormatNumber FormatString Hex InitCap IsValidUTF8 Left Length Levenshtein Lower Luhncheck
MakeValidUTF8 Mask OctetLength Overlay Quote RegExpCount RegExpExtract RegExpExtractAll RegExpInStr RegExpReplace
RegExpSubStr Right Sentences SoundEx SplitPart StartsWith StringDecode StringInstr StringLPad StringLocate StringRPad
StringRepeat StringReplace StringSpace StringSplit StringTranslate StringTrim StringTrimBoth StringTrimLeft
StringTrimRight Substring SubstringIndex ToBinary ToCharacter ToNumber TryToBinary TryToNumber TryValidateUTF8
UnBase64 Unhex Upper ValidateUTF8 ParseUrl TryParseUrl TryUrlDecode UrlDecode UrlEncode
AddMonths ConvertTimezone DateAdd DateAddInterval DateAddYMInterval DateDiff DateFormatClass DateFromUnixDate DateSub
DatetimeSub DayName DayOfMonth DayOfWeek DayOfYear DivideDTInterval DivideInterval DivideYMInterval Extract
ExtractANSIIntervalDays ExtractANSIIntervalHours ExtractANSIIntervalMinutes ExtractANSIIntervalMonths
ExtractANSIIntervalSeconds ExtractANSIIntervalYears FromUTCTimestamp FromUnixTime GetTimestamp Hour LastDay
MakeDTInterval MakeDate MakeInterval MakeTimestamp MakeTimestampFromDateTime MakeTimestampNTZ MakeYMInterval
MicrosToTimestamp MillisToTimestamp Minute Month MonthName MonthsBetween MultiplyDTInterval MultiplyInterval
MultiplyYMInterval NextDay ParseToDate ParseToTimestamp Quarter Second SecondWithFraction SecondsToTimestamp
SubtractDates SubtractTimestamps TimeBucket TimestampAdd TimestampAddInterval TimestampAddYMInterval TimestampDiff
ToUTCTimestamp ToUnixTimestamp TruncDate TruncTimestamp TryMakeInterval TryMakeTimestamp TryMakeTimestampFromDateTime
UnixDate UnixMicros UnixMillis UnixSeconds UnixTimestamp WeekDay WeekOfYear Year
CreateArray CreateMap CreateNamedStruct DropField GetArrayItem GetArrayStructFields GetMapValue GetStructField
UpdateFields WithField
ArrayAppend ArrayCompact ArrayContains ArrayDistinct ArrayExcept ArrayInsert ArrayIntersect ArrayJoin ArrayMax
ArrayMin ArrayPosition ArrayPrepend ArrayRemove ArrayRepeat ArraySize ArrayUnion ArraysOverlap ArraysZip ElementAt
Flatten Get Reverse Sequence Size Slice SortArray TryElementAt
MapConcat MapContainsKey MapEntries MapFromArrays MapFromEntries MapKeys MapSort MapValues StringToMap
ArrayAggregate ArrayExists ArrayFilter ArrayForAll ArraySort ArrayTransform LambdaFunction MapFilter MapZipWith
NamedLambdaVariable TransformKeys TransformValues ZipWith
VectorAvg VectorCosineSimilarity VectorInnerProduct VectorL2Distance VectorNorm VectorNormalize VectorSum
CsvToStructs GetJsonObject IsValidVariant IsVariantNull JsonObjectKeys JsonToStructs LengthOfJsonArray ParseJson
SchemaOfCsv SchemaOfJson SchemaOfVariant SchemaOfXml StructsToCsv StructsToJson StructsToXml ToVariantObject
VariantGet XPathBoolean XPathDouble XPathFloat XPathInt XPathList XPathLong XPathShort XPathString XmlToStructs
Explode GeneratorOuter Inline JsonTuple PosExplode Stack
"""
ROW_WISE = frozenset(_ROW_WISE.split())
_AGGREGATES = """
AggregateExpression Average BitAndAgg BitOrAgg BitXorAgg BitmapAndAgg BitmapConstructAgg BitmapOrAgg BoolAnd BoolOr
Corr Count CountIf CovPopulation CovSample HyperLogLogPlusPlus Kurtosis Max MaxBy Median Min MinBy Percentile
PercentileCont PercentileDisc RegrAvgX RegrAvgY RegrCount RegrIntercept RegrR2 RegrSXX RegrSXY RegrSYY RegrSlope
Skewness StddevPop StddevSamp Sum VariancePop VarianceSamp
"""
AGGREGATES = frozenset(_AGGREGATES.split())
"""What a grouping may ask of its rows, whose order it does not know."""
_COLLECTED = frozenset({"CollectList", "CollectSet"})
_SORTED = ("AggregateExpression", "SortArray")

_CHANCE = frozenset({"AesEncrypt", "Rand", "RandStr", "Randn", "Shuffle", "Uniform", "Uuid"})
_CLOCK = frozenset({"CurrentDate", "CurrentTime", "CurrentTimestamp", "LocalTimestamp", "Now"})
_PLACE = frozenset(
    {"InputFileBlockLength", "InputFileBlockStart", "InputFileName", "MonotonicallyIncreasingID", "SparkPartitionID"}
)
_CODE = frozenset({"CallMethodViaReflection", "PythonUDAF", "PythonUDF", "ScalaUDAF", "ScalaUDF", "TryReflect"})
_SUBQUERIES = frozenset({"Exists", "InSubquery", "LateralSubquery", "ListQuery", "ScalarSubquery"})
_ORDER = frozenset({"AnyValue", "First", "Last", "ListAgg", *_COLLECTED})

_DATED = re.compile(r"\s*[0-9]{4}(-|$)")

Refusal = tuple[str, str]
"""What is wrong with an expression, and the cure."""

OTHERWISE = "Leave it out: docs/logic.md says what transform() may use"
_REASONS = (
    (_CHANCE, "which answers by chance", "Derive it from the record: xxhash64(_src.partition, _src.offset)"),
    (_CLOCK, "which asks the clock", "Take the time from the record: a field of its own, or _src.timestamp"),
    (_PLACE, "which says where Spark reads, not what", "Take _src.partition and _src.offset"),
    (_CODE, "which runs code that Spark cannot look into", "Use Spark's functions, or name a udf() in functions"),
    (_ORDER, "which depends on the order of the records", "Use min_by() or max_by(), or sort_array(collect_list())"),
)


def refusal(found: Expression, *, grouping: bool, functions: Collection[str] = ()) -> Refusal | None:
    """Return why an expression may not be used, and the cure, or None when it may.

    Args:
        found: The expression.
        grouping: Whether aggregates may be asked for.
        functions: Names of the functions of Python that are declared to answer from their arguments alone.
    """
    if found.function and found.function in functions:
        return None
    if _reads_today(found):
        problem = f"{found.told} of a text as an instant: a time without a date is that of today"
        return problem, "Declare the column TIMESTAMP in source.schema, or say the form of the text: to_timestamp(c, f)"
    if found.name in ROW_WISE or (grouping and (found.name in AGGREGATES or _is_sorted(found))):
        return None
    if found.name in _SUBQUERIES:
        problem = f"a subquery ({found.name}), which sees the records of one batch alone"
        return problem, "Declare stateful: true and group, or do without"
    for names, reason, cure in _REASONS:
        if found.name in names:
            return f"{found.told}, {reason}", cure
    return f"{found.told}, which is not known to answer from the record alone", OTHERWISE


def _is_sorted(found: Expression) -> bool:
    return found.name in _COLLECTED and found.within == _SORTED


def _reads_today(found: Expression) -> bool:
    """Return whether an expression reads a text that may be another instant on another day: `07:00`, or `today`."""
    read = found.read
    if read is None or "timestampformat" in read.form.lower() or (found.name in CASTS and read.form):
        return False
    if found.name in PARSERS:
        return nesting.holds(read.made, _is_instant)
    if not nesting.holds(read.given, _is_text) or (read.text is not None and _DATED.match(read.text)):
        return False
    # Spark takes a constant for what it says on that day, whatever kind of instant it becomes.
    return nesting.holds(read.made, _is_time if read.constant else _is_instant)


def _is_text(kind: DataType) -> bool:
    return isinstance(kind, (StringType, VariantType))


def _is_instant(kind: DataType) -> bool:
    return isinstance(kind, TimestampType)


def _is_time(kind: DataType) -> bool:
    return isinstance(kind, (DateType, TimestampNTZType, TimestampType))
