"""Schemas between Spark and Arrow: the types that columns of streams can have, as both spell them.

pyspark has functions for this, which differ from version to version; these do not.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from jetlake.table.ddl import TYPES, list_of, unreadable

_SPARK: dict[str, DataType] = {
    "BOOLEAN": BooleanType(),
    "TINYINT": ByteType(),
    "SMALLINT": ShortType(),
    "INT": IntegerType(),
    "BIGINT": LongType(),
    "FLOAT": FloatType(),
    "DOUBLE": DoubleType(),
    "STRING": StringType(),
    "BINARY": BinaryType(),
    "DATE": DateType(),
    "TIMESTAMP": TimestampType(),
    "TIMESTAMP_NTZ": TimestampNTZType(),
}
_TO_ARROW = {kind: TYPES[name] for name, kind in _SPARK.items()}
_TO_SPARK = {TYPES[name]: kind for name, kind in _SPARK.items()}


def to_arrow(schema: StructType) -> pa.Schema:
    """A schema as Spark wants its record batches; BadOption for a type that no column of a stream has."""
    return pa.schema([_arrow_field(field, field.name) for field in schema])


def to_spark(schema: pa.Schema) -> StructType:
    """A schema for Spark."""
    return StructType([_spark_field(field) for field in schema])


def _arrow_field(field: StructField, path: str) -> pa.Field:
    return pa.field(field.name, _arrow(field.dataType, path), field.nullable)


def _arrow(kind: DataType, path: str) -> pa.DataType:
    if isinstance(kind, StructType):
        return pa.struct([_arrow_field(field, f"{path}.{field.name}") for field in kind])
    if isinstance(kind, ArrayType):
        return list_of(_arrow(kind.elementType, path), kind.containsNull)
    if isinstance(kind, MapType):
        value = pa.field("value", _arrow(kind.valueType, path), kind.valueContainsNull)
        return pa.map_(_arrow(kind.keyType, path), value)
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if kind not in _TO_ARROW:
        raise unreadable(f"column {path}", kind.simpleString().upper())
    return _TO_ARROW[kind]


def _spark_field(field: pa.Field) -> StructField:
    metadata = {name.decode(): text.decode() for name, text in (field.metadata or {}).items()}
    return StructField(field.name, _spark(field.type), field.nullable, metadata or None)


def _spark(kind: pa.DataType) -> DataType:
    if pa.types.is_struct(kind):
        return StructType([_spark_field(field) for field in kind])
    if pa.types.is_map(kind):
        return MapType(_spark(kind.key_type), _spark(kind.item_type), kind.item_field.nullable)
    if pa.types.is_list(kind):
        return ArrayType(_spark(kind.value_type), kind.value_field.nullable)
    if pa.types.is_decimal(kind):
        return DecimalType(kind.precision, kind.scale)
    return _TO_SPARK[kind]
