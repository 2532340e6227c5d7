"""The same as noop_grampus.py, with the time of each phase, in seconds, as JSON."""

import json
import time
from itertools import pairwise

marks = [("", time.perf_counter())]


def mark(phase):
    marks.append((phase, time.perf_counter()))


import grampus as gp  # noqa: E402

mark("import grampus")
gp.init(workers=2)
mark("gp.init")
gp.run(lambda: None)
mark("first gp.run")
gp.stop()
mark("gp.stop")
print(json.dumps({name: after - before for (_, before), (name, after) in pairwise(marks)}))
