"""Callbacks that tell loggers something. Workers import this, and not the trackers of the driver."""

import numpy as np

from grampus.callbacks import Callback


class Shows(Callback):
    """Shows pictures, one of them too large for one report, and draws a curve."""

    def on_step_end(self, run):
        run.log_step("twice/step", 2 * run.step)
        if run.step == 3:
            noise = np.random.default_rng(0).integers(0, 256, (700, 600, 3), dtype=np.uint8)
            run.image("noise", noise)

    def on_epoch_end(self, run):
        run.image("weights", next(run.model.parameters()).abs().clamp(max=1.0))
        run.log("doubled", 2.0 * run.epoch)


class Fails(Callback):
    """Ends a run with an error."""

    def on_step_end(self, run):
        if run.step == 3:
            raise RuntimeError("the net is torn")


class LogsMuch(Callback):
    """Logs many values at every step."""

    EACH = 4000

    def on_step_end(self, run):
        for number in range(self.EACH):
            run.log_step(f"of some layer with a long name/{number}", 1.0)
