"""Thread counts of the numeric libraries of this process."""

from __future__ import annotations

import os
import sys

_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "BLIS_NUM_THREADS",
)
# Library name, and the functions of its variants that set the number of threads.
_SETTERS = {
    "openblas": (
        "openblas_set_num_threads",
        "openblas_set_num_threads64_",
        "scipy_openblas_set_num_threads64_",
        "scipy_openblas_set_num_threads",
    ),
    "libmkl_rt": ("MKL_Set_Num_Threads",),
    "libgomp": ("omp_set_num_threads",),
    "libomp": ("omp_set_num_threads",),
    "libiomp": ("omp_set_num_threads",),
}


def environment_threads() -> int:
    """What OpenMP was told; 0 where nothing, or a list for nested levels, which is not ours to divide."""
    told = os.environ.get("OMP_NUM_THREADS", "")
    return int(told) if told.isdecimal() else 0


def set_variables(threads: int) -> None:
    """Set the variables that libraries read when they are loaded."""
    for name in _VARIABLES:
        os.environ[name] = str(threads)


def set_threads(threads: int) -> None:
    """Set the number of threads of libraries that are loaded already, and of those to come."""
    set_variables(threads)
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "set_num_threads"):
        torch.set_num_threads(threads)
    for path in _loaded():
        for part, names in _SETTERS.items():
            if part in os.path.basename(path):  # noqa: PTH119 - a line of /proc, no path of ours
                _call(path, names, threads)


def _loaded() -> set[str]:
    """Shared libraries of this process."""
    with open("/proc/self/maps") as maps:
        paths = {line.split(maxsplit=5)[-1].strip() for line in maps if ".so" in line}
    return {path for path in paths if path.startswith("/")}


def _call(path: str, names: tuple[str, ...], threads: int) -> None:
    # `import grampus` needs the count alone.
    import ctypes

    try:
        library = ctypes.CDLL(path)
    except OSError:
        return  # replaced on disk since it was loaded
    for name in names:
        setter = getattr(library, name, None)
        if setter is not None:
            setter(ctypes.c_int(threads))
            return
