"""A DataFrame of Spark, trained on for one epoch with BigDL Orca's backend on Spark.

The features are one column of arrays of floats, made before: it takes no doubles, nor 35 columns
as one input.
"""

import bigdl.dllib.nncontext
import bigdl.dllib.utils.utils

import spark_session

# It sets PYTHONHOME to the virtual environment, where no Python starts.
for module in (bigdl.dllib.nncontext, bigdl.dllib.utils.utils):
    module.set_python_home = lambda: None
spark_session.environment()

from bigdl.orca import OrcaContext, init_orca_context  # noqa: E402
from bigdl.orca.learn.pytorch import Estimator  # noqa: E402
from torch import nn  # noqa: E402

import mlp  # noqa: E402
from outside import report  # noqa: E402

OPTIONS = mlp.arguments("through")
init_orca_context("local", cores=mlp.WORKERS, memory="2g", conf=spark_session.CONF)
SPARK = spark_session.warmed(OrcaContext.get_spark_session())
FRAME = spark_session.table(SPARK, OPTIONS.data, "arrays", OPTIONS.through)


def fit():
    estimator = Estimator.from_torch(
        model=lambda _: mlp.network(),
        optimizer=lambda model, _: mlp.optimizer(model),
        loss=nn.CrossEntropyLoss(),
        backend="spark",
        workers_per_node=mlp.WORKERS,
    )
    estimator.fit(FRAME, epochs=1, batch_size=mlp.BATCH, feature_cols=["features"], label_cols=["label"])


report(fit, OPTIONS.watch)
spark_session.stop(SPARK)
