"""An Estimator: a model that trains, evaluates and predicts on many workers."""

from __future__ import annotations

import importlib
import inspect
import os
import secrets
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from grampus import frames
from grampus._arguments import former, suggest
from grampus._figures import count
from grampus._joint import joint_methods
from grampus._params import Params
from grampus._traceback import public_methods
from grampus._training import answering, attributes, inputs, recovery, rescue, saved, trees, worker, written
from grampus._training import audit as ledger
from grampus._training.claim import claimed
from grampus._training.job import Clipping, Fit, Layout, Pass, Saving, Spec, Written
from grampus._training.leaving import Interrupted
from grampus._training.options import (
    DEFAULT_BATCH_SIZE,
    check_backend,
    check_info,
    check_least,
    check_policy,
    check_score,
    check_seconds,
    check_seed,
    check_settings,
    check_size,
    ends,
    parted,
    run_folder,
    saving,
)
from grampus._training.oversight import Crew, Oversight
from grampus._training.placement import Placement
from grampus._training.recovery import Losses, allowed
from grampus._training.show import Show, hear
from grampus._training.weights import START, Weights
from grampus._wish import Wish
from grampus.history import History
from grampus.metrics import directions
from grampus.operators import overrides
from grampus.shards import feeding
from grampus.shards.batches import Rows
from grampus.shards.blocks import blocks_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from grampus.callbacks import Logger
    from grampus.cluster import Cluster
    from grampus.shards.batches import Columns
    from grampus.triggers import Trigger


@public_methods
@joint_methods("fit", "evaluate", "predict", "update_schedulers", "update_scheduler")
class Estimator(Placement, Weights, Params):
    """A single-node model on many workers. Make one with `Estimator.from_torch`.

    The driver keeps the weights between calls; workers stay warm.

    >>> import torch, grampus as gp
    >>> x = torch.linspace(-1, 1, 64).unsqueeze(1)
    >>> est = gp.Estimator.from_torch(
    ...     model=torch.nn.Linear(1, 1),
    ...     optimizer=lambda model, config: torch.optim.SGD(model.parameters(), lr=config["lr"]),
    ...     loss=torch.nn.MSELoss(),
    ...     config={"lr": 0.1},
    ...     workers=2,
    ... )
    >>> history = est.fit({"x": x, "y": 3 * x + 1}, epochs=20, batch_size=16)
    >>> est.evaluate({"x": x, "y": 3 * x + 1})["loss"] < 0.01
    True
    >>> est.predict(torch.zeros(2, 1)).shape
    torch.Size([2, 1])
    >>> est.shutdown()
    """

    def __init__(
        self,
        *,
        framework: str,
        model: Any,
        optimizer: Any = None,
        loss: Any = None,
        metrics: Any = None,
        scheduler: Any = None,
        config: dict[str, Any] | None = None,
        backend: str = "grampus",
        workers: int | None = None,
        model_dir: str | os.PathLike[str] | None = None,
        seed: int | None = None,
        lanes: int | None = None,
        threads_per_lane: int | None = None,
        scheduler_step_freq: str | None = "epoch",
        loss_weight: Callable[[Any], float] | None = None,
        training_operator_cls: Any = None,
        initialization_hook: Callable[[], None] | None = None,
        workers_per_node: int | None = None,
        precision: str | None = None,
        device: str | None = None,
    ) -> None:
        """See `Estimator.from_torch`."""
        self._params: dict[str, Any] = {
            name: value for name, value in locals().items() if name not in ("self", "__class__")
        }
        self._check()
        self._clipping: Clipping | None = None
        self._layout: Layout | None = None
        self._state: dict[str, Any] | None = None
        #: Of the last `fit`: of one that was interrupted or has failed, the epochs that were done.
        self.history: History | None = None
        self._at = dict(START)
        self._started: Cluster | None = None
        self._id = secrets.token_hex(8)

    @classmethod
    @former(
        scheduler_creator="pass it as scheduler=",
        use_tqdm="it is shown on terminals; fit(callbacks=[gp.callbacks.Progress(show=False)]) hides it",
    )
    def from_torch(
        cls,
        *,
        model: Any,
        optimizer: Any,
        loss: Any = None,
        metrics: Any = None,
        scheduler: Any = None,
        config: dict[str, Any] | None = None,
        backend: str = "grampus",
        workers: int | None = None,
        model_dir: str | os.PathLike[str] | None = None,
        seed: int | None = None,
        lanes: int | None = None,
        threads_per_lane: int | None = None,
        scheduler_step_freq: str | None = "epoch",
        loss_weight: Callable[[Any], float] | None = None,
        training_operator_cls: Any = None,
        initialization_hook: Callable[[], None] | None = None,
        workers_per_node: int | None = None,
        precision: str | None = None,
        device: str | None = None,
    ) -> Estimator:
        """An Estimator of a PyTorch model.

        Args:
            model: a module, its class, or a function `f(config)` that returns one, or several for an
                operator. Functions and classes are called on every worker, seeded alike; all begin with the
                weights of the first.
            optimizer: a torch optimizer of that module, a function `f(model, config)`, or a class or a name
                such as "adam", whose settings (`lr`, …) are taken from `config`; or one of `gp.optim`, which
                divides what it remembers among the workers.
            loss: a module, its class, a function `f(output, target)`, or a function `f(config)` that returns
                one of these; `None` where the model's output has a `loss` of its own.
            metrics: see `grampus.metrics`: measured on the rows of each epoch, on validation data, and by
                `evaluate`.
            scheduler: of the learning rate: an object, one of `gp.optim`, a function `f(optimizer, config)`,
                or `{"scheduler": …, "monitor": "val_accuracy", "interval": "epoch" or "step"}`.
            config: passed to all these functions, and to those that make data.
            backend: what sums the gradients: "grampus", "torch_distributed" (Gloo, or NCCL on GPUs) or
                "horovod".
            workers: how many to use; by default all of the cluster's, which is started where none runs.
            model_dir: the folder of the run, for checkpoints and logs; by default a new one under
                `grampus_runs`.
            seed: of all random numbers; runs with equal seed, lanes and threads end with equal weights.
            lanes: into how many parts each batch is cut; by default the number of workers. Keep it when the
                number of workers changes, and the weights stay the same to the bit.
            threads_per_lane: by default the cores of a host shared among the lanes on it.
            scheduler_step_freq: when the scheduler steps: each "epoch", each "batch", or "manual", when
                `update_schedulers` is called.
            loss_weight: a function of a batch that says what it counts for, where a loss of your own is not a
                mean over rows: for example the number of tokens. Torch's own losses need none.
            training_operator_cls: a `gp.TrainingOperator`: what is done with a batch, by code of your own.
            initialization_hook: a function that every worker calls once, before anything else.
            workers_per_node: how many workers on each host, instead of `workers`.
            precision: "bf16" or "fp16": forward in half precision, weights and optimizer in their own.
            device: "cpu" or "cuda"; by default the worker's GPU where there is one.
        """
        given = {name: value for name, value in locals().items() if name != "cls"}
        return cls(framework="torch", **given)

    @classmethod
    def from_lightning(
        cls,
        *,
        model: Any,
        config: dict[str, Any] | None = None,
        workers: int | None = None,
        model_dir: str | os.PathLike[str] | None = None,
        seed: int | None = None,
        lanes: int | None = None,
        threads_per_lane: int | None = None,
        loss_weight: Callable[[Any], float] | None = None,
        precision: str | None = None,
        device: str | None = None,
    ) -> Estimator:
        """An Estimator of a LightningModule, or of its class or a function `f(config)` that returns one.

        Optimizer and schedulers are those of `configure_optimizers`. Steps get batches as they are, and what
        they log goes into the records. The rest is as for `from_torch`; `loss_weight` is for training alone.
        """
        given = {name: value for name, value in locals().items() if name != "cls"}
        return cls(framework="lightning", **given)

    @classmethod
    def from_native(
        cls,
        *,
        model: Any,
        loss: Any = None,
        optimizer: Any = None,
        scheduler: Any = None,
        config: dict[str, Any] | None = None,
        dtype: str = "float32",
        groups: Sequence[Any] = (),
        sharded: bool = False,
        metrics: Any = None,
        workers: int | None = None,
        model_dir: str | os.PathLike[str] | None = None,
        seed: int | None = None,
        lanes: int | None = None,
        threads_per_lane: int | None = None,
    ) -> Estimator:
        """An Estimator of a model of Grampus's own engine, in Rust: it needs no other framework.

        Args:
            model: a `gp.nn.Sequential` or `gp.nn.Model`, or a function `f(config)` that returns one; or the
                path of a file that `save` wrote, whose layers and weights it then has.
            loss: of `gp.nn`, such as `gp.nn.MSE()`.
            optimizer: of `gp.optim`, such as `gp.optim.Adam(lr=0.01)`.
            scheduler: of `gp.optim`, such as `gp.optim.Cosine(1000)`.
            config: passed to functions that make models and data.
            dtype: "float32" or "float64".
            groups: a list of `gp.optim.Group`: layers with a learning rate of their own.
            sharded: divide what the optimizer remembers among the workers; each keeps a part, and that of its
                neighbour in case that one is lost. The weights are the same to the bit.
            metrics, workers, model_dir, seed, lanes, threads_per_lane: as for `from_torch`.

        >>> import grampus as gp
        >>> model = gp.nn.Sequential().add(gp.nn.Linear(2, 2))
        >>> est = gp.Estimator.from_native(model=model, loss=gp.nn.MSE(), optimizer=gp.optim.Adam(lr=0.01))
        """
        if dtype not in ("float32", "float64"):
            raise ValueError(f"dtype must be 'float32' or 'float64', it is {dtype!r}")
        config = {**(config or {}), "dtype": dtype, "groups": list(groups), "sharded": bool(sharded)}
        path = model if isinstance(model, str | os.PathLike) else None
        if path is not None:
            model = importlib.import_module("grampus.nn.graph").Saved(os.fspath(path))
        own = ("cls", "dtype", "groups", "sharded", "path", "own")
        estimator = cls(framework="native", **{name: v for name, v in locals().items() if name not in own})
        return estimator if path is None else estimator.load(path)

    @former(
        checkpoint_trigger="pass it as checkpoint=, with model_dir= of the Estimator for the folder",
        validation_methods="pass them as metrics= of the Estimator",
    )
    def fit(
        self,
        data: Any,
        y: Any = None,
        epochs: int | Trigger = 1,
        batch_size: int | None = DEFAULT_BATCH_SIZE,
        validation_data: Any = None,
        feature_cols: Columns | None = None,
        label_cols: Columns | None = None,
        callbacks: Sequence[Any] | None = None,
        checkpoint: Any = None,
        resume: bool | str = False,
        max_steps: int | None = None,
        max_failures: int | None = 10,
        max_preemptions: int | None = None,
        min_workers: int = 1,
        audit: bool = False,
        step_timeout: float = 1800.0,
        slow_worker: str = "warn",
        order_by: str | Sequence[str] | None = None,
        info: dict[str, Any] | None = None,
        profile: bool = False,
        reduce_results: bool = True,
    ) -> History:
        """Train, and return the history, a record an epoch. A lost worker changes nothing of what comes out.

        Args:
            data, y: `{"x": …, "y": …}` of arrays or tensors, or `x` and `y` apart; a Dataset, a DataLoader;
                shards, tables and paths of files; a DataFrame of Spark or a Dataset of Ray, whose rows stay
                with the executors; or a function `f(config)` or `f(config, batch_size)` that returns these.
            epochs, max_steps: how many, or a trigger that ends the run; and how many steps at most.
            batch_size: rows of a batch over all workers together; `None` takes the loader's.
            validation_data: is evaluated after each epoch, in the same forms.
            feature_cols, label_cols: names of columns, lists of names (matrices), steps of `grampus.columns`.
            callbacks, info: see `grampus.callbacks`; and a dict for a `gp.TrainingOperator`.
            checkpoint: a folder or `s3://…`, a trigger, or a `grampus.Checkpoint`.
            resume: go on from the newest checkpoint, if there is one; or a place to look for it.
            max_failures: how many lost workers are made good; `None` for any number.
            max_preemptions: the same for workers that are told to go (SIGTERM, SIGUSR1), which loses nothing.
            min_workers: go on with so many where lost ones cannot be replaced at once; others join later.
            audit: keep a ledger of the rows that every step used, for `grampus audit`.
            step_timeout: seconds without a finished step after which a run ends with a report of all stacks.
            slow_worker: what becomes of one: "warn" names it, "shed" gives lanes away, "evict" replaces it.
            order_by: columns that give the rows of a DataFrame an order, and so each run the same batches.
            profile: measure parts of the work: a dict `profile` in each record, in seconds.
            reduce_results: `False` returns a list for each epoch instead, of a dict for each worker.
        """
        y, epochs = inputs.without_epochs(y, epochs)
        settings = self._asked(info, profile, reduce_results, audit, step_timeout) | ends(epochs, max_steps)
        watched, loggers = self._watched(callbacks, checkpoint, settings["end"], validation_data is not None)
        where, self._apart, settings = watched["saving"], y is not None, settings | watched
        losses = allowed(max_failures, max_preemptions)
        with claimed([self._params["model_dir"], None if where is None else where.url]):
            found, layout = self._resumed(resume, where), self._laid_out(*self._cluster())
            with self._reading(order_by, batch_size, feature_cols, label_cols) as read:
                losses.heal = read.heal
                settings |= {"data": read.data(data, y), "validation": read.data_also(validation_data)}
                job = Fit(self._spec(), layout, **settings, **self._beginning(found))
                told: History = self._trained(job, loggers, losses, audit, min_workers, slow_worker, read)
                return told

    def _asked(
        self, info: Any, profile: Any, reduce_results: Any, audit: bool, step_timeout: Any
    ) -> dict[str, Any]:
        """What a run is called, what is told of it, and how long a step may take."""
        if audit and overrides(self._params["training_operator_cls"], "train_epoch"):
            raise ValueError("audit=True does not see the rows of a train_epoch of your own: use train_batch")
        told = {"info": self._info(info), "profile": bool(profile), "apart": not reduce_results}
        told["step_timeout"] = check_seconds(step_timeout, "step_timeout")
        return {"id": secrets.token_hex(8), **told}

    def _info(self, info: Any) -> dict[str, Any]:
        return check_info(info, self._params["training_operator_cls"] is not None)

    def _watched(
        self, callbacks: Any, checkpoint: Any, end: str | None, validates: bool
    ) -> tuple[dict[str, Any], list[Logger]]:
        """What looks at a run, saves it and ends it, by what its metrics say."""
        ways = directions(self._params["metrics"])
        beside, loggers, stop_on_nan, asked = parted(callbacks, checkpoint, ways)
        where = saving(asked, self._params["model_dir"], self._params["backend"], ways)
        check_score([end, None if where is None else where.every], ways, validates)
        return {"callbacks": beside, "stop_on_nan": stop_on_nan, "saving": where}, loggers

    def _reading(
        self, order_by: Any, batch_size: int | None, features: Columns | None, labels: Columns | None
    ) -> inputs.Inputs:
        return inputs.Inputs(self._cluster()[0], self._framework(), batch_size, (features, labels), order_by)

    def _trained(
        self,
        job: Fit,
        loggers: list[Logger],
        losses: Losses,
        audit: bool,
        least: Any,
        policy: Any,
        read: inputs.Inputs,
    ) -> Any:
        workers, backend = self._params["workers"], self._params["backend"]
        # Steps of an operator take all workers.
        own = overrides(self._params["training_operator_cls"], "train_batch", "train_epoch")
        most = job.layout.lanes if workers is None else workers
        least = check_least(least, most, regroups=backend == "grampus" and not own)
        policy = check_policy(policy, backend)
        # Last: what was asked for wrongly leaves no folder behind.
        folder = job.run = run_folder(self._params["model_dir"])
        attempts = ledger.attempts(folder) if audit else None
        cluster = self._cluster()[0]
        most = self._most(cluster, job.layout)
        crew = Crew(cluster, least, min(most, cluster.workers) if least is None else most)
        with read.held(), self._keeping(crew, job, losses), Show(loggers, folder, losses) as show:
            oversight = Oversight(crew, show, job, policy, attempts)
            answers = recovery.train(job, oversight.call, losses, self._from_checkpoint)
            history = self._took(answers, job.callbacks)
            history.copied_bytes = read.copied_bytes
            if losses.interrupted:
                raise Interrupted
            if not job.apart:
                return history
            return [list(epoch) for epoch in zip(*(answer["own"] for answer in answers), strict=True)]

    @contextmanager
    def _keeping(self, crew: Crew, job: Fit, losses: Losses) -> Iterator[None]:
        """Inside, a run that does not end well leaves the weights of its last committed step here."""
        before = self._at
        try:
            yield
        except (Exception, KeyboardInterrupt) as error:
            found = rescue.rescued(crew, job, error, losses) if self._at is before else None
            if found is not None:
                self._state, self._at, self.history = found.state, found.at, History(found.records)
            rescue.tell(error, None if self._at is before else self._at, job, losses)
            raise

    def _resumed(self, resume: bool | str, where: Saving | None) -> saved.Saved | None:
        """The checkpoint from which to go on; a new run gets a place of its own."""
        if not resume:
            if where is not None:
                saved.check_unused(where.url, self._at["step"])
            return None
        found = saved.sought(resume, where, self._params["model_dir"])
        if found is not None:
            self._adopted(found)
        return found

    def _from_checkpoint(self, job: Fit) -> Fit | None:
        """The job as it goes on from the newest checkpoint of its own, if it has written one."""
        found = None if job.saving is None else saved.latest(job.saving.url)[0]
        if found is None or found.meta["first"] != job.first:
            # An earlier run has written it.
            return None
        return replace(job, losses=0, **self._beginning(found))

    def _beginning(self, found: saved.Saved | None) -> dict[str, Any]:
        """Where a run begins: where the last one ended, or at a checkpoint."""
        if found is None:
            at = self._at
            if at["step_in_epoch"]:
                # The rest of that epoch is a matter of its data, which this call need not have.
                at = {**START, "epoch": at["epoch"] + 1, "step": at["step"]}
            return {"first": at, "at": at, "state": self._state, "resumed_from": None, "saved": None}
        told = found.meta
        here = {"first": told["first"], "at": told["at"], "state": found.state}
        return {**here, "resumed_from": found.name, "saved": told}

    def _took(self, answers: list[dict[str, Any]], callbacks: list[Any]) -> History:
        """Keep what the first worker has trained."""
        first = answers[0]
        self._state, self._at = first["state"], first["at"]
        history = self.history = History(first["records"], first["reason"])
        history.workers = [{"pid": answer["pid"], "rows": answer["rows"]} for answer in answers]
        attributes.unpack(first["callbacks"], callbacks)
        return history

    @former(validation_methods="pass them as metrics=", validation_metrics="pass them as metrics=")
    def evaluate(
        self,
        data: Any,
        y: Any = None,
        batch_size: int | None = DEFAULT_BATCH_SIZE,
        feature_cols: Columns | None = None,
        label_cols: Columns | None = None,
        num_steps: int | None = None,
        info: dict[str, Any] | None = None,
        profile: bool = False,
        metrics: Any = None,
    ) -> dict[str, Any]:
        """Loss and metrics over all rows, each counted once, with their number as `num_samples`.

        With an operator that validates, what it says. `y` are targets, where `data` is an array or a frame of
        features alone. `num_steps` is how many batches are looked at, `info` goes to operators, `profile`
        adds a dict of seconds that parts of the work took, and `metrics` replace the Estimator's.
        """
        steps = None if num_steps is None else check_size(num_steps, "num_steps")
        more = {"num_steps": steps, "info": self._info(info), "profile": bool(profile), "metrics": metrics}
        answers = self._pass(worker.evaluate, data, batch_size, feature_cols, label_cols, more, y)
        return dict(answers[0])

    def predict(
        self,
        data: Any,
        batch_size: int | None = DEFAULT_BATCH_SIZE,
        feature_cols: Columns | None = None,
        out: str | os.PathLike[str] | None = None,
        output_cols: str | Sequence[str] | None = None,
    ) -> Any:
        """The model's output for every row, in order: arrays for arrays, tensors for tensors and loaders.

        A data frame comes back with a column `prediction`, or one for each output of the model, in the place
        of a column that has this name already. So do tables, files (as an Arrow table) and shards of them;
        shards of dicts get an entry of that name. DataFrames of Spark and Datasets of Ray come back lazy:
        tasks of the engine predict, with the model as it is now.

        Args:
            data: as for `fit`, without labels; after `fit(x, y)`, what can be `x`.
            batch_size: rows of a batch over all workers together.
            feature_cols: columns of tables and frames.
            out: where to write the result of tables, files or shards of them, instead of returning it: a
                file that ends in `.parquet`, or a new folder, which gets a file for each block of rows. The
                workers write while they predict, so that rows beyond memory can be predicted.
            output_cols: names of the columns, one for each output, in the place of `prediction`.
        """
        names = feeding.output_names(output_cols)
        feature_cols, _ = inputs.named_columns(self._framework(), data, feature_cols, None)
        if frames.frame_of(data) is not None:
            size = None if batch_size is DEFAULT_BATCH_SIZE else check_size(batch_size, "batch_size")
            model = answering.Model(self._spec(), self._state, self._seed(), size, names)
            return frames.predicted(data, model, feature_cols, out)
        shards = feeding.shards_of(data)
        if shards is not None and shards._skip:
            shards = shards._again(skip=False)
        if out is not None:
            return self._write(shards, check_size(batch_size, "batch_size"), feature_cols, out, names)
        if names is not None and shards is None and not trees.is_frame(data):
            raise ValueError("output_cols= would have no effect: this data has no columns; leave it out")
        alone = inputs.features(data) if self._apart and feature_cols is None else None
        given = (data if shards is None else shards) if alone is None else alone
        more = {"output_names": names}
        answers = self._pass(
            worker.predict, given, batch_size, feature_cols, None, more, apart=alone is not None
        )
        parts = sorted((part for answer in answers for part in answer), key=lambda part: part[:2])
        outputs = [output for _, _, output in parts]
        if shards is None and not trees.is_frame(data):
            return self._framework().joined(outputs, data)
        columns = feeding.renamed(self._framework().predictions(outputs), names)
        return feeding.with_predictions(data, shards, columns)

    def _write(
        self, shards: Any, batch_size: int, feature_cols: Any, out: str | os.PathLike[str], names: Any
    ) -> str:
        path = written.check_place(out)
        rows = None if shards is None else feeding.rows_of(shards, feature_cols, None)
        if not isinstance(rows, Rows):
            raise ValueError("out= takes the rows of tables, files or shards: write other results yourself")
        cluster, workers = self._cluster()
        layout = self._laid_out(cluster, workers)
        size, blocks = -(-batch_size // layout.lanes), blocks_of(shards, cluster.shares_memory)
        job = Written(self._spec(), layout, self._state, blocks, rows.wanted, size, names)
        written.write(job, cluster, self._most(cluster, layout), path)
        return os.fspath(out)

    def _pass(
        self,
        function: Callable[[Pass], Any],
        data: Any,
        batch_size: int | None,
        feature_cols: Columns | None,
        label_cols: Columns | None,
        more: dict[str, Any] | None = None,
        y: Any = None,
        apart: bool = False,
    ) -> list[Any]:
        cluster, workers = self._cluster()
        layout = self._laid_out(cluster, workers)
        ranks = self._most(cluster, layout)
        least = 1 if self._params["backend"] == "grampus" else None
        with self._reading(None, batch_size, feature_cols, label_cols) as read:
            spec, settings = self._spec(), dict(more or {})
            asked = settings.pop("metrics", None)
            spec.metrics = spec.metrics if asked is None else asked
            job = Pass(spec, layout, self._state, read.only(data, y, apart), **settings)
            with read.held():
                return recovery.repeated(
                    lambda: cluster._call(function, (job,), {}, ranks, hear, Wish(), least), read.heal
                )

    def update_schedulers(self, metric: float | None = None) -> None:
        """Let the schedulers take a step, with `scheduler_step_freq="manual"`; plateaus get the metric."""
        if self._params["scheduler"] is None:
            raise ValueError("there is no scheduler to update: pass scheduler= to from_torch")
        cluster, workers = self._cluster()
        layout = replace(self._laid_out(cluster, workers), lanes=1)
        job = (self._spec(), layout, self._state, metric)
        [self._state] = cluster._call(worker.update_schedulers, job, {}, 1, hear, Wish(), 1)

    update_scheduler = update_schedulers

    def __repr__(self) -> str:
        """Name the model."""
        model = self._params["model"]
        name = getattr(model, "__name__", type(model).__name__)
        done = f", {count(self._at['epoch'], 'epoch')} trained" if self._at["step"] else ""
        return f"<grampus.Estimator of {name} ({self._params['framework']}){done}>"

    def _framework(self) -> Any:
        return importlib.import_module(f"grampus.frameworks.{self._params['framework']}")

    def _seed(self) -> int:
        return int(self._params["seed"] or 0)

    def _spec(self) -> Spec:
        params = self._params
        names = inspect.signature(Spec).parameters.keys() & params.keys()
        spec = Spec(**{name: params[name] for name in names})
        spec.config = dict(params["config"] or {})
        spec.clipping = self._clipping
        spec.id = self._id
        return spec

    def _check(self) -> None:
        params = self._params
        check_backend(params["backend"])
        for name in ("workers", "lanes", "threads_per_lane", "workers_per_node"):
            if params[name] is not None:
                check_size(params[name], name)
        if params["seed"] is not None:
            check_seed(params["seed"])
        check_settings(params)
        if params["config"] is not None and not isinstance(params["config"], dict):
            raise TypeError(f"config must be a dict, it is a {type(params['config']).__name__}")


suggest(globals())
