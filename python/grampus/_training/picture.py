"""Pictures as PNG files."""

from __future__ import annotations

import struct
import zlib
from typing import Any, NamedTuple

# How PNG calls grey and colours.
_COLOUR_TYPES = {1: 0, 3: 2}


class Picture(NamedTuple):
    """A picture, as a PNG file."""

    png: bytes
    width: int
    height: int
    channels: int


def pictured(array: Any) -> Picture:
    """An array or tensor as a picture.

    Height x width, height x width x 1 or 3, or 3 x height x width; bytes, or floats from 0 to 1.

    >>> import numpy as np
    >>> pictured(np.zeros((2, 5)))[1:]
    (5, 2, 1)
    """
    pixels = _as_bytes(_as_array(array))
    height, width, channels = pixels.shape
    # Each row begins with the way in which it is filtered, which is none.
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[channels], 0, 0, 0)
    chunks = _chunk(b"IHDR", header), _chunk(b"IDAT", zlib.compress(rows)), _chunk(b"IEND", b"")
    return Picture(b"\x89PNG\r\n\x1a\n" + b"".join(chunks), width, height, channels)


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _as_array(array: Any) -> Any:
    import numpy as np

    if hasattr(array, "detach"):
        array = array.detach().cpu()
        # Half floats of tensors need not have a name in numpy.
        array = (array.float() if array.is_floating_point() else array).numpy()
    return np.asarray(array)


def _as_bytes(array: Any) -> Any:
    """Height x width x channels, of bytes."""
    import numpy as np

    shape = array.shape
    if array.ndim == 2:
        array = array[:, :, None]
    elif array.ndim == 3 and shape[2] not in _COLOUR_TYPES and shape[0] in _COLOUR_TYPES:
        array = array.transpose(1, 2, 0)
    if array.ndim != 3 or array.shape[2] not in _COLOUR_TYPES or not array.size:
        raise ValueError(
            f"an image of shape {tuple(shape)} cannot be shown: pass height x width, "
            "height x width x 1 or 3, or 3 x height x width, without empty axes"
        )
    if array.dtype == np.uint8:
        return array
    if array.dtype == bool:
        return array * np.uint8(255)
    if array.dtype.kind != "f":
        raise TypeError(f"an image of {array.dtype} cannot be shown: pass uint8, or floats from 0 to 1")
    return (np.clip(np.nan_to_num(array), 0.0, 1.0) * 255.0 + 0.5).astype(np.uint8)
