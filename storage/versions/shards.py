"""Rows to Parquet shards and back: checked schemas, bounded memory, the same bytes for the same rows.

`datasets` has no map type, so a map column is stored as the list of key/value structs that it is, and is a map
again when read here.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from storage.disk import check_regular
from storage.errors import PassNetError
from storage.parquet import parquet_sink
from storage.schema import ADDED, CONFIGS
from storage.versions.manifest import Shard

BLOCK_ROWS = 64
GROUP_ROWS = 8192
GROUP_BYTES = 16 << 20
UNREADABLE = (pa.ArrowException, OSError, UnicodeDecodeError)
"""What Arrow raises on a damaged file."""

Rows = pa.Table | Iterable[pa.RecordBatch]


@dataclass(frozen=True)
class ShardLimits:
    """A shard is closed at the limit that it reaches first, behind a whole row group."""

    rows: int = 100_000
    bytes: int = 256 << 20


LIMITS = ShardLimits()


def config_schema(config: str) -> pa.Schema:
    """Schema of a config's rows; PassNetError where there is no such config."""
    if config not in CONFIGS:
        raise PassNetError(f"there is no config {config!r}: use one of {', '.join(CONFIGS)}")
    return CONFIGS[config]


def write_split(rows: Rows, config: str, split: str, root: Path, limits: ShardLimits) -> list[Shard]:
    """Write one split below `root` and return its shards; no rows give one empty shard, so that the split exists.

    Where shards and row groups end depends on the rows alone, never on how they were batched.
    Raises PassNetError when rows do not fit the config's schema or their iterator fails; OSError from the disk.
    """
    schema = _disk_schema(config_schema(config))
    directory = root / "data" / config
    directory.mkdir(parents=True, exist_ok=True)
    blocks = _blocks(_checked(rows, f"{config}/{split}", config), min(BLOCK_ROWS, limits.rows))
    groups = _row_groups(blocks, min(GROUP_ROWS, limits.rows))
    written: list[tuple[Path, int]] = []
    group = next(groups, None)
    while group is not None or not written:
        path = directory / f"{split}.{len(written):05d}"
        with parquet_sink(path, schema) as sink:
            while group is not None and (not sink.rows or (sink.rows < limits.rows and sink.bytes < limits.bytes)):
                sink.write(group)
                group = next(groups, None)
        written.append((path, sink.rows))
    return [_named(root, config, split, path, count, i, len(written)) for i, (path, count) in enumerate(written)]


def read_shard(
    path: Path, config: str, columns: Sequence[str] | None = None, filter: pc.Expression | None = None
) -> Iterator[pa.RecordBatch]:
    """Stream a shard's rows, with page checksums verified.

    Columns and fields that the file's PassNet did not know yet are null. Raises PassNetError naming the file when it is
    missing, corrupt, or has columns that this config has not.
    """
    expected = config_schema(config)
    stored = _disk_schema(expected)
    try:
        check_regular(path)
        found = pq.read_schema(path)
        if not _is_part(pa.struct(list(found)), pa.struct(list(stored))):
            raise PassNetError(
                f"{path} has other columns than config {config!r} of this PassNet: "
                "rebuild the version, or open it with the PassNet that wrote it"
            )
    except UNREADABLE as error:
        raise _unreadable(path, error) from error
    options = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    format_ = ds.ParquetFileFormat(default_fragment_scan_options=options)
    (fragment,) = ds.dataset(path, schema=stored, format=format_).get_fragments()
    chosen = None if columns is None else list(columns)
    try:
        for group in fragment.split_by_row_group():  # a scan of the whole file would read far ahead
            for batch in group.to_batches(stored, columns=chosen, filter=filter):
                if len(batch):
                    yield _with_maps(batch, expected)
    except UNREADABLE as error:
        raise _unreadable(path, error) from error


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _unreadable(path: Path, error: Exception) -> PassNetError:
    reason = (
        "is missing" if isinstance(error, FileNotFoundError) else f"is corrupt ({str(error).splitlines()[0][:160]})"
    )
    return damaged(path, reason)


def damaged(path: Path, problem: str) -> PassNetError:
    """What to say of a shard of a version that `problem` is wrong with, such as "is missing"."""
    return PassNetError(f"{path} {problem}: restore it, or delete {path.parents[2]} and build that version again")


def _named(root: Path, config: str, split: str, written: Path, rows: int, index: int, of: int) -> Shard:
    path = f"data/{config}/{split}-{index:05d}-of-{of:05d}.parquet"
    target = written.rename(root / path)
    return Shard(config, split, path, rows, target.stat().st_size, file_sha256(target))


def _checked(rows: Rows, what: str, config: str) -> Iterator[pa.Table]:
    """Tables in the stored schema, one a batch."""
    if isinstance(rows, pa.Table):
        rows = rows.to_batches() or [pa.RecordBatch.from_pylist([], rows.schema)]
    iterator = iter(rows)
    while True:
        try:
            batch = next(iterator)
        except StopIteration:
            return
        except PassNetError:
            raise
        except Exception as error:
            raise PassNetError(
                f"nothing was published: making the rows of {what} failed with {type(error).__name__}: {error}"
            ) from error
        yield _fitted(batch, what, config_schema(config))


def _fitted(batch: pa.RecordBatch, what: str, schema: pa.Schema) -> pa.Table:
    names = batch.schema.names
    missing = [name for name in schema.names if name not in names]
    extra = [name for name in names if name not in schema.names]
    if missing or extra or len(names) != len(schema):
        raise PassNetError(
            f"nothing was published: rows of {what} lack {missing or 'no column'}, "
            f"and have unknown or repeated {extra or 'no column'}: see storage/schema.py"
        )
    columns = []
    for field, stored in zip(schema, _disk_schema(schema), strict=True):
        column = batch.column(field.name)
        if not _same_names(column.type, field.type):
            raise PassNetError(f"nothing was published: {what}, column {field.name} is {column.type}, not {field.type}")
        try:
            columns.append(column.cast(field.type).cast(stored.type))
        except pa.ArrowException as error:
            raise PassNetError(f"nothing was published: {what}, column {field.name}: {error}") from error
    return pa.Table.from_arrays(columns, schema=_disk_schema(schema))


def _same_names(found: pa.DataType, expected: pa.DataType) -> bool:
    """Whether a cast keeps every struct field: Arrow's drops unknown ones and fills missing ones with nulls."""
    if pa.types.is_null(found):
        return True
    if pa.types.is_struct(expected):
        return (
            pa.types.is_struct(found)
            and {field.name for field in found} == {field.name for field in expected}
            and all(_same_names(found.field(field.name).type, field.type) for field in expected)
        )
    if pa.types.is_list(expected):
        return hasattr(found, "value_type") and _same_names(found.value_type, expected.value_type)
    return True


def _blocks(tables: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """The same rows in tables of exactly `rows` rows, the last one shorter."""
    pending: list[pa.Table] = []
    room = rows
    for table in tables:
        while len(table):
            piece, table = table.slice(0, room), table.slice(room)
            pending.append(piece)
            room -= len(piece)
            if room == 0:
                yield pa.concat_tables(pending).combine_chunks()
                pending, room = [], rows
    if pending:
        yield pa.concat_tables(pending).combine_chunks()


def _row_groups(blocks: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Blocks put together up to `rows` rows or GROUP_BYTES of values."""
    pending: list[pa.Table] = []
    count = weight = 0
    for block in blocks:
        pending.append(block)
        count += len(block)
        weight += sum(_value_bytes(chunk) for column in block.columns for chunk in column.chunks)
        if count >= rows or weight >= GROUP_BYTES:
            yield pa.concat_tables(pending).combine_chunks()
            pending, count, weight = [], 0, 0
    if pending:
        yield pa.concat_tables(pending).combine_chunks()


def _value_bytes(array: pa.Array) -> int:
    """Bytes of an array's values; unlike `nbytes`, a function of the values alone."""
    if pa.types.is_struct(array.type):
        return sum(_value_bytes(child) for child in array.flatten())
    if pa.types.is_list(array.type):
        return _value_bytes(array.flatten())
    if pa.types.is_string(array.type):
        return pc.sum(pc.binary_length(array)).as_py() or 0
    return 8 * len(array)


def _is_part(found: pa.DataType, expected: pa.DataType) -> bool:
    """Whether a type is the expected one, but for fields that were added to it since."""
    if pa.types.is_struct(found) and pa.types.is_struct(expected):
        there, known = ({field.name: field.type for field in type_} for type_ in (found, expected))
        alike = all(name in known and _is_part(type_, known[name]) for name, type_ in there.items())
        return alike and known.keys() - there.keys() <= ADDED
    if pa.types.is_list(found) and pa.types.is_list(expected):
        return _is_part(found.value_type, expected.value_type)
    return found.equals(expected)


def _disk_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, _disk_type(field.type)) for field in schema])


def _disk_type(type_: pa.DataType) -> pa.DataType:
    if not pa.types.is_map(type_):
        return type_
    return pa.list_(pa.struct([("key", type_.key_type), ("value", type_.item_type)]))


def _with_maps(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    fields = [schema.field(name) for name in batch.schema.names]
    columns = [
        _as_map(column, field.type) if pa.types.is_map(field.type) else column
        for column, field in zip(batch.columns, fields, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _as_map(column: pa.ListArray, type_: pa.MapType) -> pa.MapArray:
    # Built of the entries that the lists hold: below them, in what a filter took out, there may be nulls.
    entries = column.flatten()
    keys, items = (entries.field(number).cast(t) for number, t in enumerate((type_.key_type, type_.item_type)))
    pairs = pa.StructArray.from_arrays([keys, items], fields=[type_.key_field, type_.item_field])
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate(([0], lengths.cumsum())), pa.int32())
    valid = column.is_valid().buffers()[1] if column.null_count else None
    return pa.Array.from_buffers(type_, len(column), [valid, offsets.buffers()[1]], children=[pairs])
