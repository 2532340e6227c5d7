"""A DataFrame of Spark, trained on for one epoch with Grampus."""

from torch import nn

import grampus as gp
import mlp
from outside import report
from spark_session import session, stop, table

OPTIONS = mlp.arguments("through")
SPARK = session()
FRAME = table(SPARK, OPTIONS.data, "columns", OPTIONS.through)


def fit():
    gp.init(mlp.WORKERS, "spark")
    estimator = gp.Estimator.from_torch(
        model=lambda _: mlp.network(),
        optimizer=lambda model, _: mlp.optimizer(model),
        loss=nn.CrossEntropyLoss(),
        threads_per_lane=1,
    )
    estimator.fit(FRAME, batch_size=mlp.BATCH, feature_cols=[mlp.FEATURES], label_cols="label")


report(fit, OPTIONS.watch)
gp.stop()
stop(SPARK)
