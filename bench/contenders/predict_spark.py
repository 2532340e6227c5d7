"""Predictions of a DataFrame of Spark, written to nowhere, with `grampus` or with `udf`, predict_batch_udf.

First once, with all that Python's workers import, then again with workers that are there.
"""

import sys
import time

from torch import nn

import mlp
from outside import say
from spark_session import session, stop, table

TIMES = 3


def grampus(_, frame, names):
    import grampus as gp

    gp.init(mlp.WORKERS, "spark")
    estimator = gp.Estimator.from_torch(
        model=mlp.network(), optimizer="sgd", loss=nn.CrossEntropyLoss(), threads_per_lane=1
    )
    return estimator.predict(frame, feature_cols=names if len(names) == 1 else [names])


def udf(spark, frame, names):
    from pyspark.ml.functions import predict_batch_udf
    from pyspark.sql.functions import array
    from pyspark.sql.types import ArrayType, FloatType

    weights = spark.sparkContext.broadcast(mlp.network().state_dict())

    def load():
        import torch

        model = mlp.network().eval()
        model.load_state_dict(weights.value)

        def predict(inputs):
            with torch.inference_mode():
                return model(torch.from_numpy(inputs).float()).numpy()

        return predict

    # As its documentation says: several columns go in as one of arrays, with the shape of a row.
    made = predict_batch_udf(
        load, return_type=ArrayType(FloatType()), batch_size=8192, input_tensor_shapes=[[len(mlp.FEATURES)]]
    )
    features = frame[names[0]] if len(names) == 1 else array(*names)
    return frame.withColumn("prediction", made(features))


def main():
    way, kind, data = sys.argv[1:]
    # As Spark's documentation says for such functions: larger batches of Arrow, equal for both.
    spark = session(**{"spark.sql.execution.arrow.maxRecordsPerBatch": "8192"})
    frame = table(spark, data, kind, through=False)
    names = ["features"] if kind == "arrays" else mlp.FEATURES
    seconds = []
    for _ in range(1 + TIMES):
        began = time.perf_counter()
        predicted = {"grampus": grampus, "udf": udf}[way](spark, frame, names)
        predicted.write.format("noop").mode("overwrite").save()
        seconds.append(time.perf_counter() - began)
    say(first=seconds[0], seconds=sorted(seconds[1:])[TIMES // 2])
    stop(spark)


if __name__ == "__main__":
    main()
