"""What travels from the driver to the workers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from grampus.shards.batches import Columns, Wanted
    from grampus.shards.blocks import Blocks
    from grampus.shards.delivery import Load


@dataclass(frozen=True)
class Clipping:
    """Bounds of gradients: of each value, or of their norm."""

    least: float | None = None
    most: float | None = None
    norm: float | None = None


@dataclass
class Spec:
    """What a user says about a model. It travels as one piece: its parts may share parameters."""

    framework: str
    model: Any
    optimizer: Any = None
    loss: Any = None
    metrics: Any = None
    scheduler: Any = None
    scheduler_step_freq: str = "epoch"
    config: dict[str, Any] = field(default_factory=dict)
    backend: str = "grampus"
    loss_weight: Callable[[Any], float] | None = None
    clipping: Clipping | None = None
    # Code of the user's own for a batch, and for the beginning of a worker.
    training_operator_cls: Any = None
    initialization_hook: Callable[[], None] | None = None
    # Tells Estimators apart.
    id: str = ""
    # "bf16" or "fp16"; where to compute, if not on the worker's GPU.
    precision: str | None = None
    device: str | None = None


@dataclass(frozen=True)
class Layout:
    """How the work is cut: equal for all calls of a run."""

    lanes: int
    seed: int
    threads: int


@dataclass
class Data:
    """Data as the user passed it, and how to read it."""

    value: Any
    batch_size: int | None
    given: bool
    feature_cols: Columns | None = None
    label_cols: Columns | None = None
    # What of it must be on every host before it can be read; nothing where workers see the driver's memory.
    loads: list[Load] = field(default_factory=list)
    # Whether features and targets were passed apart, as in scikit-learn: doubles are cast for the model.
    apart: bool = False


@dataclass(frozen=True)
class Saving:
    """Where and when a run is saved."""

    url: str
    every: str | None
    keep: int | None
    best: str | None
    mode: str = "auto"
    on_error: str = "warn"
    on_driver_loss: bool = False


@dataclass
class Fit:
    """One call of `fit`."""

    spec: Spec
    layout: Layout
    state: Any
    data: Data
    validation: Data | None
    # How far to go: epochs, steps, and a trigger as JSON.
    epochs: int | None
    max_steps: int | None
    end: str | None
    callbacks: list[Any]
    stop_on_nan: bool
    saving: Saving | None
    # Where the run begins, and where it goes on from: positions of the loop.
    first: dict[str, Any]
    at: dict[str, Any]
    # The checkpoint from which a run goes on, and what it says.
    resumed_from: str | None
    saved: dict[str, Any] | None
    # Its folder, which is made last.
    run: str | None = None
    # Tells this run from others, how often it has gone on after a loss, and what was lost, in words.
    id: str = ""
    losses: int = 0
    lost: str = ""
    # The number of this attempt in the ledger; nothing where none is kept.
    audit: int | None = None
    # Seconds within which a step must end; calls of the group wait for longer, so that the driver judges.
    step_timeout: float = 1800.0
    # What slow workers do of what others do, by host and process.
    shares: dict[str, float] = field(default_factory=dict)
    # Passed to operators; whether to measure parts of the work, and to keep the numbers of each worker.
    info: dict[str, Any] = field(default_factory=dict)
    profile: bool = False
    apart: bool = False
    # On what the run was trained until now, which workers find out.
    platforms: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Pass:
    """One call of `evaluate` or `predict`."""

    spec: Spec
    layout: Layout
    state: Any
    data: Data
    # How many batches at most; what operators are passed; whether to measure parts of the work.
    num_steps: int | None = None
    info: dict[str, Any] = field(default_factory=dict)
    profile: bool = False
    # Of predictions, where columns become of them.
    output_names: list[str] | None = None


@dataclass
class Written:
    """One call of `predict` whose results go to files, one for each block of rows."""

    spec: Spec
    layout: Layout
    state: Any
    blocks: Blocks
    wanted: Wanted
    # Rows that the model is given at once.
    batch_size: int
    output_names: list[str] | None = None
    folder: str = ""
    # Numbers of the blocks that are not written yet.
    left: list[int] = field(default_factory=list)
