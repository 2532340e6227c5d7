"""What children of a process that has used a GPU leave to it."""

import pytest
from processes import run_file

# An object of a device, which must not end in a child, is dropped in a circle before a fork.
PROGRAM = """
import gc, os
from grampus import _forks

class OfDevice:
    def __init__(self):
        self.itself, self.owner = self, os.getpid()

    def __del__(self):
        if os.getpid() != self.owner:
            os._exit(7)

if {enabled} is False:
    gc.disable()
_forks.leave_garbage_to_parent()
_forks.leave_garbage_to_parent()
OfDevice()
child = os.fork()
if child == 0:
    collects = gc.isenabled()
    gc.collect()
    os._exit(20 + collects)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(code, gc.isenabled(), gc.get_freeze_count(), gc.collect() > 0)
"""


@pytest.mark.parametrize("enabled", [True, False])
def test_a_child_collects_nothing_of_its_parent(enabled, tmp_path):
    out = run_file(tmp_path / "forks.py", PROGRAM.format(enabled=enabled))
    assert out.split() == [str(20 + enabled), str(enabled), "0", "True"]
