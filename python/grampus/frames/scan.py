"""Which Parquet files stand behind a frame, where its rows are theirs and nothing else was done with them.

Who reads the files then reads what the frame has, without an engine in between. Where anything is in doubt,
the answer is none: the rows of the frame itself are always right.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from grampus import _native
from grampus._spark_versions import is_connect
from grampus.frames import engine_of
from grampus.frames.spark_schema import NUMBERS

if TYPE_CHECKING:
    from collections.abc import Iterable

_TEXTS = {"string": "utf8", "binary": "binary"}
# Settings with which Spark goes on where a file cannot be read.
_FORGIVING = ("spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles")
# Options of a reader that change neither which rows there are nor what is in them.
_HARMLESS = ("path", "paths", "recursivefilelookup")


class Scan(NamedTuple):
    """What a plan reads: where, and the names and types of the columns that come out."""

    roots: list[str]
    files: list[str]
    columns: dict[str, str]


class _Unsure(Exception):
    """Why a frame is no plain scan."""


def files_of(frame: Any) -> tuple[list[str] | None, str]:
    """The files, sorted, whose rows in this order are those of the frame; or none, and why not.

    A choice of columns is no change. The files are on disks of this machine, or on S3.
    """
    try:
        return decided(_ray(frame) if engine_of(frame) == "ray" else _spark(frame))
    except _Unsure as why:
        return None, str(why)


def decided(scan: Scan) -> tuple[list[str] | None, str]:
    """Whether the files of a plan can be read in its place; they are opened to compare the columns.

    >>> decided(Scan(["hdfs://a/b"], ["hdfs://a/b/1.parquet"], {}))
    (None, 'hdfs://a/b/1.parquet is neither on a disk nor on S3')
    """
    if not scan.files:
        return None, "there are no files"
    roots = [root.rstrip("/") for root in scan.roots]
    for place, root in enumerate(roots):
        if any(other == root or other.startswith(f"{root}/") for other in roots[:place] + roots[place + 1 :]):
            return None, f"{root} is read more than once"
    if len(roots) > 1 and any(set(root) & set("*?[{") for root in roots):
        return None, "several patterns may name the same file"
    files = []
    for file in scan.files:
        found = _readable(file)
        if found is None:
            return None, f"{file} is neither on a disk nor on S3"
        if shadowed := [name for name in scan.columns if f"/{name}=" in found]:
            return None, f'column "{shadowed[0]}" is taken from the names of folders'
        files.append(found)
    try:
        data = _native.ParquetDataset(sorted(files))
    except (_native.GrampusError, ValueError, OSError) as error:
        return None, f"the files cannot be read as one table: {error}"
    have = dict(zip(data.columns, data.dtypes, strict=True))
    for name, kind in scan.columns.items():
        if name not in have:
            return None, f'column "{name}" is not in the files'
        if not _same(kind, have[name]):
            return None, f'column "{name}" is {kind} in the frame and {have[name]} in the files'
    return sorted(files), f"a plain scan of {len(files)} files"


def _readable(file: str) -> str | None:
    """The name under which the files are read without an engine."""
    parts = urlsplit(file)
    if parts.scheme in ("", "file"):
        path = unquote(parts.path)
        return path if Path(path).is_file() else None
    if parts.scheme in ("s3", "s3a"):
        return f"s3://{parts.netloc}{unquote(parts.path)}"
    return None


def _same(kind: str, found: str) -> bool:
    """Whether a type of Spark's SQL, or of Arrow, is that of a column of a file."""
    if kind.startswith("array<"):
        return found.startswith("List(") and _same(kind[6:-1], found[5:].partition(",")[0])
    return (NUMBERS | _TEXTS).get(kind, kind) == found.lower().replace("boolean", "bool")


def _spark(frame: Any) -> Scan:
    session = frame.sparkSession
    for setting in _FORGIVING:
        if session.conf.get(setting, "false") == "true":
            raise _Unsure(f"Spark may leave out rows: {setting} is true")
    return _connect(frame) if is_connect(session) else _classic(frame)


def _classic(frame: Any) -> Scan:
    """Walk the plan in the JVM, from the columns that come out down to the files."""
    plan = frame._jdf.queryExecution().analyzed()
    while (name := _class(plan)) == "Project":
        expressions = plan.projectList()
        for place in range(expressions.size()):
            if _class(expressions.apply(place)) != "AttributeReference":
                raise _Unsure(f"a column is computed: {expressions.apply(place).toString()}")
        plan = plan.child()
    if name != "LogicalRelation":
        raise _Unsure(f"the plan has a step {name}")
    relation = plan.relation()
    if _class(relation) != "HadoopFsRelation" or _class(relation.fileFormat()) != "ParquetFileFormat":
        raise _Unsure("it does not read Parquet files")
    if relation.bucketSpec().isDefined():
        raise _Unsure("the files are buckets of a table")
    options = relation.options()
    _check_options([options.keys().toSeq().apply(place) for place in range(options.size())])
    paths = relation.location().rootPaths()
    roots = [paths.apply(place).toString() for place in range(paths.size())]
    return Scan(roots, list(frame.inputFiles()), _columns(frame))


def _class(held: Any) -> str:
    return str(held.getClass().getSimpleName())


def _connect(frame: Any) -> Scan:
    """Walk the plan as it is sent to the server."""
    relation = frame._plan.to_proto(frame.sparkSession.client).root
    while (name := relation.WhichOneof("rel_type")) == "project":
        for expression in relation.project.expressions:
            kind = expression.WhichOneof("expr_type")
            attribute = expression.unresolved_attribute.unparsed_identifier
            if kind != "unresolved_star" and (kind != "unresolved_attribute" or "." in attribute):
                raise _Unsure("a column is computed")
        relation = relation.project.input
    if name != "read" or relation.read.WhichOneof("read_type") != "data_source":
        raise _Unsure(f"the plan has a step {name}")
    source = relation.read.data_source
    if source.format.lower() != "parquet":
        raise _Unsure("it does not read Parquet files")
    if source.schema or source.predicates:
        raise _Unsure("a schema was given to the reader")
    _check_options(source.options)
    return Scan(list(source.paths), list(frame.inputFiles()), _columns(frame))


def _check_options(options: Iterable[str]) -> None:
    for name in options:
        if str(name).lower() not in _HARMLESS:
            raise _Unsure(f"the reader has the option {name}")


def _columns(frame: Any) -> dict[str, str]:
    if len(set(frame.columns)) < len(frame.columns):
        raise _Unsure("two columns have one name")
    return {field.name: field.dataType.simpleString() for field in frame.schema.fields}


def _ray(dataset: Any) -> Scan:
    """Walk the logical plan of Ray, which is not its public interface: what is not as expected is unsure."""
    try:
        step = dataset._logical_plan.dag
        while type(step).__name__ == "Project":
            if any(type(each).__name__ != "ColumnExpr" for each in step.exprs):
                raise _Unsure("a column is computed")
            (step,) = step.input_dependencies
        if type(step).__name__ != "ReadFiles" or step.datasource_name != "ParquetV2":
            raise _Unsure(f"the plan has a step {type(step).__name__}")
        reader = step.scanner
        (listing,) = step.input_dependencies
        changes = [reader.shuffle, reader.predicate, reader.limit, reader.partition_predicate]
        changes += [step.block_udf, listing.partition_filter, reader.columns]
        if any(change is not None for change in changes) or reader.synthesized_columns:
            raise _Unsure("the reader chooses or adds rows or columns")
        roots = [str(path) for path in listing.paths]
        known = dataset.schema(fetch_if_missing=True)
    except (AttributeError, ValueError, TypeError) as error:
        raise _Unsure(f"this version of Ray shows its plan in another way ({error})") from None
    columns = dict(zip(known.names, map(_arrow_name, known.types), strict=True))
    return Scan(roots, _native.find_files(roots, ["parquet"]), columns)


def _arrow_name(kind: Any) -> str:
    """A type of Arrow as Spark's SQL has it, where that has a name."""
    names = {"float": "float", "double": "double", "bool": "boolean", "string": "string", "binary": "binary"}
    names |= {found: name for name, found in NUMBERS.items()}
    if str(kind).startswith("list<"):
        return f"array<{_arrow_name(kind.value_type)}>"
    return names.get(str(kind), str(kind))
