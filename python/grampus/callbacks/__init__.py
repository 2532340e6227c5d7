"""What looks on while a model trains.

**Callbacks** run beside the model, on the worker of rank 0: they see it, and can end the run. **Loggers** run
in the driver, on the events that rank 0 sends: they write files and draw progress, and never see the model.

>>> stopping = EarlyStopping("val_accuracy", patience=2)
>>> stopping
EarlyStopping('val_accuracy', patience=2, min_delta=0.0, mode='auto', start=0)
"""

from grampus._arguments import suggest
from grampus._logger import Logger
from grampus._progress import Progress
from grampus.callbacks.callback import Callback, Run
from grampus.callbacks.epoch_files import CSVLog, JSONLog
from grampus.callbacks.graph import ModelGraph
from grampus.callbacks.mlflow import MLflow
from grampus.callbacks.monitors import GradientNorm, LearningRates
from grampus.callbacks.stopping import EarlyStopping, StopOnNaN
from grampus.callbacks.tensorboard import TensorBoard
from grampus.callbacks.wandb import WandB

__all__ = [
    "CSVLog",
    "Callback",
    "EarlyStopping",
    "GradientNorm",
    "JSONLog",
    "LearningRates",
    "Logger",
    "MLflow",
    "ModelGraph",
    "Progress",
    "Run",
    "StopOnNaN",
    "TensorBoard",
    "WandB",
]


suggest(globals())
