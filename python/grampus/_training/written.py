"""Predictions that go to Parquet files: each worker writes those of the blocks of rows that it reads."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grampus import _exception, _native
from grampus._training import recovery
from grampus._training.cleanup import closing
from grampus._training.job import Data
from grampus._training.show import hear
from grampus._training.worker import begin, parts
from grampus._wish import Wish
from grampus.errors import DataError
from grampus.shards import delivery, feeding
from grampus.shards.batches import Rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from grampus._training.job import Written
    from grampus.cluster import Cluster
    from grampus.shards.blocks import Block, Blocks

_ONE_FILE = (".parquet", ".pq")
# Seconds until what a worker has written must be seen here: network file systems may show it late.
VISIBLE_WITHIN = 30.0
# Names of parts that an error gives.
_NAMED = 5


def part_name(number: int) -> str:
    """The file of a block, which depends on the block alone."""
    return f"part-{number:05}.parquet"


def predict(job: Written) -> None:
    """Write the predictions of this worker's blocks."""
    lanes, framework = begin(job.spec, job.layout)
    # A block is read by one worker, whose lanes have no part in it.
    alone = replace(lanes, mine=range(1), total=1)
    with (
        delivery.brought(job.blocks.loads, lanes.group),
        closing(framework.model(job.spec, lanes, job.state, training=False)) as model,
        model.evaluating(),
    ):
        for number in job.left[lanes.group.rank :: lanes.group.size]:
            block = job.blocks.blocks[number]
            try:
                table = job.blocks.load(block)
                data = Data(Rows(job.wanted, tables=[table]), job.batch_size, given=True)
                with closing(framework.feed(data, alone, job.spec, training=False)) as feed:
                    outputs = list(_outputs(model, feed, block))
            except Exception as error:
                _exception.note(error, f"grampus: in {block.name}")
                raise
            whole = feeding.extended(
                table, "table", feeding.renamed(framework.predictions(outputs), job.output_names)
            )
            _native.Table.from_stream(whole).write_parquet(Path(job.folder, part_name(number)))


def write(job: Written, cluster: Cluster, ranks: int, path: Path) -> None:
    """Have workers predict all blocks; what lost ones have not written is predicted again."""
    blocks = job.blocks
    held = delivery.released(cluster, blocks.loads)
    with cluster.held(), held, place_of(path, len(blocks.blocks)) as folder:

        def predict_the_rest() -> None:
            delivery.deliver(cluster, blocks.loads)
            rest = replace(job, folder=str(folder), left=left(blocks, folder))
            cluster._call(predict, (rest,), {}, ranks, hear, Wish(), 1)

        recovery.repeated(predict_the_rest)


def left(blocks: Blocks, folder: Path) -> list[int]:
    """The blocks that are not written yet: a file is there when it is whole."""
    return [number for number in range(len(blocks.blocks)) if not (folder / part_name(number)).exists()]


def _outputs(model: Any, feed: Any, block: Block) -> Iterator[Any]:
    for _, lane, rows, _, batch in parts(feed, model):
        first = block.first + batch.first
        # What a model draws belongs to the rows, whoever reads them.
        yield model.predict(lane, batch._replace(first=first, rows=range(first, first + rows)))


def check_place(out: str | os.PathLike[str]) -> Path:
    """Where results go: a file that may be replaced, or a folder that must be new."""
    place = os.fspath(out)
    if "://" in place:
        raise ValueError(f"out={place!r} is an address: write to a disk, and copy it from there")
    path = Path(place).absolute()
    if not path.parent.is_dir():
        raise ValueError(f"out={place!r} is in a folder that does not exist: make it first")
    if path.suffix in _ONE_FILE and path.is_dir():
        raise ValueError(f"out={place!r} is a folder: name a file, or leave {path.suffix} away")
    if path.suffix not in _ONE_FILE and path.exists():
        raise ValueError(f"out={place!r} exists: name a new folder, or a file that ends in .parquet")
    return path


@contextmanager
def place_of(path: Path, count: int) -> Iterator[Path]:
    """A folder for so many parts; at the end they become what was asked for, or, after an error, nothing."""
    if not count:
        raise ValueError("there are no rows to predict")
    folder = path.with_name(f".{path.name}.parts")
    # What a driver left that was killed is of no use: nobody knows whether the data is still the same.
    held = _held(folder)
    try:
        for left in folder.iterdir():
            left.unlink()
        yield folder
        names = [part_name(number) for number in range(count)]
        for half in _visible(folder, names) - set(names):
            # What a worker was writing when it was killed.
            (folder / half).unlink()
        if path.suffix in _ONE_FILE:
            _native.join_parquet([str(folder / name) for name in names], path)
        else:
            folder.rename(path)
    finally:
        os.close(held)
        shutil.rmtree(folder, ignore_errors=True)


def _visible(folder: Path, names: list[str]) -> set[str]:
    """All files of the folder, once these are among them."""
    deadline = time.monotonic() + VISIBLE_WITHIN
    while True:
        found = {part.name for part in folder.iterdir()}
        missing = [name for name in names if name not in found]
        if not missing:
            return found
        if time.monotonic() > deadline:
            more = ", …" if len(missing) > _NAMED else ""
            raise DataError(
                f"{len(missing)} of {len(names)} parts that workers have written are not in {folder}: "
                f"{', '.join(missing[:_NAMED])}{more}: a network file system may show them late, or not "
                "to this machine; write to one that all machines share"
            )
        time.sleep(0.05)


def _held(folder: Path) -> int:
    """The folder, which nobody else writes to meanwhile."""
    folder.mkdir(exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise ValueError(
            f"another prediction is being written to the same place (it holds {folder}): wait for it, or "
            "choose another"
        ) from None
    return descriptor
