"""How many GPUs of an engine each worker gets: pure functions of what was asked for and what there is."""

from __future__ import annotations

import math
from typing import NamedTuple

from grampus._figures import count


class Share(NamedTuple):
    """GPUs of each worker: 0 hides them, none leaves the engine's own choice. And what to tell the user."""

    gpus: float | None
    advice: str | None = None


def share(asked: float | None, workers: int | None, available: float) -> Share:
    """What was asked for; otherwise a GPU for each worker, where there are enough.

    `workers` is none where there are to be as many as the engine has room for: then one for each GPU.

    >>> share(0.5, 4, available=0)
    Share(gpus=0.5, advice=None)
    >>> share(None, 4, available=0)
    Share(gpus=None, advice=None)
    >>> share(None, 2, available=2)
    Share(gpus=1, advice=None)
    >>> share(None, None, available=8)
    Share(gpus=1, advice=None)
    >>> print(share(None, 4, available=2).advice)
    4 workers compute on CPUs, since there are only 2 GPUs: ask for workers=2, or let workers share \
GPUs, with gpus_per_worker=0.5; gpus_per_worker=0 says that CPUs are meant
    """
    if asked is not None:
        return Share(asked)
    if available < 1:
        return Share(None)
    if workers is None or workers <= available:
        return Share(1)
    # Rounded down, so that they fit.
    fraction = math.floor(100 / -(-workers // int(available))) / 100
    return Share(
        0,
        f"{workers} workers compute on CPUs, since there are only {available:g} GPUs: ask for "
        f"workers={available:.0f}, or let workers share GPUs, with gpus_per_worker={fraction:g}; "
        "gpus_per_worker=0 says that CPUs are meant",
    )


def room(nodes: list[dict[str, float]], cores: int, gpus: float | None) -> int:
    """How many workers nodes with these resources have room for.

    >>> room([{"CPU": 8, "GPU": 1}, {"CPU": 4}], 2, None)
    6
    >>> room([{"CPU": 8, "GPU": 1}, {"CPU": 4}], 2, 0.5)
    2
    >>> room([{"CPU": 1, "GPU": 8}], 1, 4)
    1
    """
    found = 0
    for node in nodes:
        fits = int(node.get("CPU", 0) // cores)
        if gpus:
            fits = min(fits, on_whole_gpus(node.get("GPU", 0), gpus))
        found += fits
    return found


def on_whole_gpus(available: float, each: float) -> int:
    """How many workers share so many GPUs: parts of several are not put together.

    >>> on_whole_gpus(4, 2), on_whole_gpus(2, 0.5), on_whole_gpus(1, 0.4)
    (2, 4, 2)
    """
    # Thirds come as decimals.
    return int(available // each) if each >= 1 else int(available) * int(1 / each + 1e-2)


def per_worker(cores: int, gpus: float | None) -> str:
    """What each worker gets, in words.

    >>> per_worker(1, None), per_worker(4, 1), per_worker(2, 0.5)
    ('1 CPU', '4 CPUs and 1 GPU', '2 CPUs and 0.5 GPUs')
    """
    return " and ".join([count(cores, "CPU")] + ([count(gpus, "GPU")] if gpus else []))
