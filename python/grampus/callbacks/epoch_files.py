"""Text files of epochs."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from grampus._figures import columns
from grampus._files import naming
from grampus._logger import Logger


class _EpochFile(Logger, ABC):
    """A text file with a line for every epoch."""

    may_fail = True
    _is_file = True

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)

    @property
    def place(self) -> str | None:
        """The file."""
        return self.path

    def event(self, event: dict[str, Any]) -> None:
        """Add an epoch."""
        if event["kind"] == "begin":
            done = event.get("epoch") or 0
            self._replace([record for record in self._kept() if int(record["epoch"]) <= done])
        elif event["kind"] == "epoch":
            self._replace([*self._kept(), event["record"]])

    def _kept(self) -> list[dict[str, Any]]:
        """The records in the file; none where there is no file."""
        try:
            with open(self.path, encoding="utf-8", newline="") as file:
                records = list(self._read(file))
            if all(str(record["epoch"]).isdecimal() for record in records):
                return records
        except FileNotFoundError:
            return []
        except (KeyError, TypeError, ValueError, csv.Error):
            pass
        raise ValueError(
            f"{self.path} is no {type(self).__name__} of epochs: move it away or name another file"
        )

    def _replace(self, records: Sequence[dict[str, Any]]) -> None:
        """Write the file anew, so that it is whole at any moment."""
        target = Path(self.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            with naming(target), open(fresh, "w", encoding="utf-8", newline="") as file:
                file.write(self._text(records))
            fresh.replace(target)
        finally:
            fresh.unlink(missing_ok=True)

    @abstractmethod
    def _read(self, lines: Iterable[str]) -> Iterable[dict[str, Any]]:
        """The records that a file holds."""

    @abstractmethod
    def _text(self, records: Sequence[dict[str, Any]]) -> str:
        """A whole file of records."""


class CSVLog(_EpochFile):
    """Writes the epochs' records to a CSV file, one line each, below a line of names.

    A run that starts anew replaces the file; one that goes on after some epochs keeps theirs, and no epoch
    stands there twice.

    Args:
        path: the file. Its folder is made where it is missing.
    """

    def _read(self, lines: Iterable[str]) -> Iterable[dict[str, Any]]:
        reader = csv.DictReader(lines)
        if "epoch" not in (reader.fieldnames or ["epoch"]):
            raise KeyError("epoch")
        return reader

    def _text(self, records: Sequence[dict[str, Any]]) -> str:
        buffer, names = io.StringIO(), columns(records)
        writer = csv.DictWriter(buffer, names, lineterminator="\n")
        if records:
            writer.writeheader()
        writer.writerows(records)
        return buffer.getvalue()


class JSONLog(_EpochFile):
    """Writes the epochs' records to a file, each as a JSON object on a line of its own.

    A run that starts anew replaces the file; one that goes on after some epochs keeps theirs, and no epoch
    stands there twice. JSON has no word for values that are no numbers (NaN, infinity): they are `null`.

    Args:
        path: the file. Its folder is made where it is missing.
    """

    def _read(self, lines: Iterable[str]) -> Iterable[dict[str, Any]]:
        return map(json.loads, lines)

    def _text(self, records: Sequence[dict[str, Any]]) -> str:
        return "".join(f"{json.dumps(_finite(record), allow_nan=False)}\n" for record in records)


def _finite(value: Any) -> Any:
    """The value with `None` for all numbers in it that JSON cannot write."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
