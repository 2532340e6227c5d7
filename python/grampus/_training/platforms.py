"""On what a run computes, as far as its bits depend on it: processors, and versions of libraries.

Workers compare it when they form the group of a run: when it begins, and each time that one joins it later. A
difference withdraws the promise of equal bits, aloud. Checkpoints keep it, so that a run that is resumed on
another machine is compared with the one before.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pickle
import platform
import sys
from typing import TYPE_CHECKING, Any

from grampus import _native, _report

if TYPE_CHECKING:
    from grampus._training.job import Fit
    from grampus.collective import Group

# Variables that tell libraries to use less of a processor than there is, or other kernels.
_LIMITS = (
    "ATEN_CPU_CAPABILITY",
    "DNNL_MAX_CPU_ISA",
    "GLIBC_TUNABLES",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "NPY_DISABLE_CPU_FEATURES",
    "ONEDNN_MAX_CPU_ISA",
    "OPENBLAS_CORETYPE",
)


def here(framework: Any) -> dict[str, str]:
    """What the bits of this worker depend on; a framework says what it does itself, once it is imported."""
    # What one side leaves out is not compared, and one that is set on one worker alone differs, too.
    limits = {name: os.environ.get(name) or "not set" for name in _LIMITS}
    own: dict[str, str] = framework.platform() if hasattr(framework, "platform") else {}
    if "numpy" in sys.modules:
        own["numpy"] = sys.modules["numpy"].__version__
    return {**_fixed(), **limits, **own}


@functools.cache
def _fixed() -> dict[str, str]:
    found = {**_native.processor(), "python": platform.python_version(), "grampus": _native.__version__}
    # Other C libraries have no such name.
    with contextlib.suppress(ValueError, OSError):
        found["libc"] = os.confstr("CS_GNU_LIBC_VERSION") or ""
    return found


def compare(job: Fit, group: Group, framework: Any) -> list[dict[str, Any]]:
    """All platforms of a run, for its checkpoints; where they differ, the first worker warns."""
    mine = _report.sender()["host"], here(framework)
    # Peers of the group have proved the key of the job.
    members = [pickle.loads(each) for each in group._native.gather_bytes(pickle.dumps(mine))]
    known = [] if job.saved is None else job.saved.get("platforms", [])
    found, why = _native.compare_platforms(json.dumps(known), members, job.losses > 0)
    if why is not None and group.rank == 0:
        _report.note(why)
    platforms: list[dict[str, Any]] = json.loads(found)
    return platforms
