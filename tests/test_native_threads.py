"""Threads that use one native model at once: none waits for another with the interpreter lock in hand."""

from processes import finish, start

# A call lets go of the interpreter lock while it computes, and takes it again before it lets go of the model.
SHARED = """
import json, threading
import numpy as np
from grampus import _native, nn

model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8))
native = _native.NativeModel(json.dumps(model.description()), 0, 1, False)
rows = np.zeros((256, 64), dtype=np.float32)

def use(work):
    for _ in range(200):
        work()

work = [lambda: native.predict([rows], len(rows)), native.weights, native.first_not_finite, native.parameters]
threads = [threading.Thread(target=use, args=(each,)) for each in work + work]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("done")
"""


def test_threads_share_a_native_model():
    code, out, err = finish(start(SHARED), 60)
    assert (code, out) == (0, "done\n"), err
