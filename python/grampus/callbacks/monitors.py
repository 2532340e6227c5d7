"""Callbacks that follow what happens inside the training."""

from __future__ import annotations

from grampus.callbacks._checks import at_least
from grampus.callbacks.callback import Callback, Run


class LearningRates(Callback):
    """Draws the learning rate of every group of parameters: `learning_rate/0`, `learning_rate/1`, ….

    They are those with which the next step begins, as a scheduler has left them.

    Args:
        every: look at every n-th step.
    """

    def __init__(self, every: int = 1) -> None:
        at_least("every of LearningRates", every, 1)
        self.every = every

    def on_step_end(self, run: Run) -> None:
        """Look at the groups."""
        if run.step % self.every:
            return
        groups = getattr(run.optimizer, "param_groups", None)
        if groups is None:
            raise TypeError(
                f"LearningRates reads the groups of a torch optimizer, and this is a "
                f"{type(run.optimizer).__name__}: leave it out, loggers draw train/learning_rate without it"
            )
        for number, group in enumerate(groups):
            run.log_step(f"learning_rate/{number}", float(group["lr"]))


class GradientNorm(Callback):
    """Draws `gradient_norm`: the L2 norm of all gradients together, summed over all workers.

    It is that of the gradients that the optimizer has used: where they are clipped, after that.

    Args:
        every: look at every n-th step.
    """

    def __init__(self, every: int = 1) -> None:
        at_least("every of GradientNorm", every, 1)
        self.every = every

    def on_step_end(self, run: Run) -> None:
        """Measure them: they are still there."""
        if run.step % self.every:
            return
        if not callable(getattr(run.model, "parameters", None)):
            raise TypeError(
                f"GradientNorm reads the gradients of a torch module, and this is a "
                f"{type(run.model).__name__}: leave it out"
            )
        import torch

        grads = [p.grad.detach() for p in run.model.parameters() if p.grad is not None]
        # Rows of a sparse gradient may be there several times until it is coalesced.
        dense = [grad.coalesce().values() if grad.is_sparse else grad for grad in grads]
        norms = [
            torch.linalg.vector_norm(grad, dtype=torch.promote_types(grad.dtype, torch.float32))
            for grad in dense
        ]
        # Together, so that a GPU is waited for once.
        total = torch.stack([norm.to(norms[0]) for norm in norms]).norm() if norms else 0.0
        run.log_step("gradient_norm", float(total))
