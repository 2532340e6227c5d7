"""The driver is killed; its workers save the run, where that was asked for, and end by themselves."""

import time
from pathlib import Path

import pytest
from clusters import scratch  # noqa: F401 - a fixture
from processes import finish, marked, read_line, start, wait_until

DRIVER = """
    import os, sys, time

    sys.path.insert(0, sys.argv[1])
    import grampus as gp
    from deadly_runs import Deadly, Net, arrays, estimator
    from grampus._training import leaving

    way, resume = sys.argv[2], sys.argv[3] == "resume"

    class Slow(Deadly):
        steps = 0

        def forward(self, output, target):
            self.steps += 1
            if way == "stuck" and self.steps > 6:
                open("stuck", "w").close()
                time.sleep(1000)
            time.sleep(0.02)
            return super().forward(output, target)

    def model(config):
        if way == "stuck":
            leaving._SAVED_WITHIN = 1.0
        return Net()

    class Tells(gp.callbacks.Logger):
        def event(self, event):
            if event["kind"] == "steps":
                print("step", event["step"], flush=True)

    gp.init(workers=2, preload=["numpy", "torch", "torch._dynamo"])
    est = estimator(Slow("."), workers=2, model=model)
    place = gp.Checkpoint("saved", every=gp.triggers.EverySteps(1000), on_driver_loss=True)
    est.fit(arrays(), epochs=3, batch_size=12, checkpoint=place, resume=resume, callbacks=[Tells()])
    calm = estimator(Deadly("."), workers=2)
    calm.fit(arrays(), epochs=3, batch_size=12)
    print("digests", est.digest(), calm.digest(), flush=True)
"""
TESTS = Path(__file__).parent


def killed(way):
    """A driver that is killed within its first epoch."""
    driver = start(DRIVER, TESTS, way, "anew")
    assert read_line(driver).startswith("step")
    assert way != "stuck" or wait_until(Path("stuck").exists)
    driver.kill()
    return driver


def saved():
    return [int(path.name.removeprefix("step-")) for path in Path("saved").glob("step-*")]


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """Torch leaves one in the temporary folder, which must stay empty."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))


def test_workers_of_a_killed_driver_save_the_run_and_the_next_one_goes_on(runtime):
    finish(killed("saves"))
    assert wait_until(lambda: not marked(str(runtime)), 12), "workers are left behind"
    steps = saved()
    assert len(steps) == 1
    assert 0 < steps[0] < 24
    code, out, errors = finish(start(DRIVER, TESTS, "saves", "resume"), 40)
    assert code == 0, errors
    name, digest, undisturbed = out.split()[-3:]
    assert (name, digest) == ("digests", undisturbed)


def test_workers_that_cannot_finish_their_step_are_ended_in_time(runtime):
    driver = killed("stuck")
    began = time.monotonic()
    finish(driver)
    assert wait_until(lambda: not marked(str(runtime)), 10), "workers are left behind"
    assert time.monotonic() - began > 0.9, "they had a second"
    assert not saved()
