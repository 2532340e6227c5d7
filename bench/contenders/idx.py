"""Reads the files of MNIST and of what is kept in its format."""

import gzip
from pathlib import Path

import numpy


def read_idx(folder, name):
    """Return the array of bytes in a file, plain or as .gz."""
    plain, packed = Path(folder, name), Path(folder, f"{name}.gz")
    data = plain.read_bytes() if plain.exists() else gzip.decompress(packed.read_bytes())
    shape = numpy.frombuffer(data, ">i4", data[3], offset=4)
    return numpy.frombuffer(data, numpy.uint8, offset=4 + 4 * data[3]).reshape(shape)
