"""Models and datasets of Hugging Face, as they are."""

from __future__ import annotations

import pytest
import torch
from clusters import one_cluster, scratch  # noqa: F401 - a fixture
from safetensors.numpy import load_file
from torch import nn

import grampus as gp

datasets = pytest.importorskip("datasets")
transformers = pytest.importorskip("transformers")

from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification  # noqa: E402

ROWS, WORDS = 48, 20
BERT = ("input_ids", "attention_mask")
WEIGHTS = "folder/model.safetensors"

runtime = one_cluster(workers=2)


def config():
    return BertConfig(
        vocab_size=WORDS,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
    )


def tiny(_config):
    return BertForSequenceClassification(config())


def columns(count=ROWS):
    """Sentences of eight words, and whether the first comes before the second in the dictionary."""
    words = torch.randint(2, WORDS, (count, 8), generator=torch.Generator().manual_seed(0))
    labels = (words[:, 0] < words[:, 1]).long()
    return {"input_ids": words, "attention_mask": torch.ones_like(words), "labels": labels}


def table(**other):
    return datasets.Dataset.from_dict({**{name: c.tolist() for name, c in columns().items()}, **other})


def classifier(**other):
    given = {"model": tiny, "optimizer": "adamw", "config": {"lr": 0.01}, "seed": 1, "lanes": 2}
    return gp.Estimator.from_torch(**{**given, "metrics": [gp.metrics.Accuracy()], **other})


def fit(estimator, data, **other):
    return estimator.fit(data, batch_size=16, **other)


@pytest.fixture(scope="module")
def trained():
    estimator = classifier()
    history = fit(estimator, table(), epochs=2, validation_data=table())
    assert history["val_accuracy"][-1] > 0.5
    return estimator


def test_a_dataset_is_its_columns_in_any_form(trained):
    rows = table()
    made = table().remove_columns("labels").add_column("target", columns()["labels"].tolist())
    made.set_transform(lambda batch: {"labels": batch["target"], **{k: batch[k] for k in BERT}})
    for data in (
        columns(),
        rows.with_format("torch"),
        rows.with_format("numpy"),
        rows.with_format("pandas"),
        made,
        lambda config: table(),
    ):
        estimator = classifier()
        fit(estimator, data, epochs=2)
        assert estimator.digest() == trained.digest()


def test_answers_are_those_of_the_model(trained):
    """Metrics compare the logits with the labels."""
    found = trained.predict(table())
    given = columns()
    with torch.no_grad():
        expected = trained.get_model()(**given)
    assert found.keys() == {"logits"}
    torch.testing.assert_close(found["logits"], expected.logits)
    without = table().remove_columns("labels")
    torch.testing.assert_close(trained.predict(without)["logits"], found["logits"], rtol=0, atol=0)
    told = trained.evaluate(table(), batch_size=16)
    right = (expected.logits.argmax(1) == given["labels"]).sum().item() / ROWS
    assert told == {"loss": pytest.approx(expected.loss.item()), "accuracy": right, "num_samples": ROWS}


def test_what_was_trained_is_pretrained(trained):
    trained.save("folder", format="pretrained")
    again = BertForSequenceClassification.from_pretrained("folder").eval()
    with torch.no_grad():
        torch.testing.assert_close(again(**columns()).logits, trained.predict(table())["logits"])
    assert classifier(seed=2).load("folder").digest() == trained.digest()
    more = classifier(model=again, optimizer=torch.optim.AdamW(again.parameters()))
    assert more.digest() == trained.digest()
    fit(more, table())
    assert more.digest() != trained.digest()


def test_weights_that_are_tied_come_back():
    model = BertForMaskedLM(config())
    model.save_pretrained("folder")
    assert "cls.predictions.decoder.weight" in model.state_dict().keys() - load_file(WEIGHTS).keys()
    found = gp.Estimator.from_torch(model=lambda _: BertForMaskedLM(config()), optimizer="sgd").load("folder")
    weights = found.state_dict()
    for name, value in model.state_dict().items():
        torch.testing.assert_close(weights[name], value, rtol=0, atol=0)


def test_columns_can_be_named():
    names = {"feature_cols": ["input_ids", "attention_mask"], "label_cols": "labels"}
    data = table(text=["a b"] * ROWS)

    def loss(output, target):
        return nn.functional.cross_entropy(output.logits, target)

    estimator = classifier(loss=loss)
    fit(estimator, data, **names)
    arrays = classifier(loss=loss)
    fit(arrays, columns(), **names)
    assert estimator.digest() == arrays.digest()
    assert estimator.evaluate(data, **names) == arrays.evaluate(columns(), **names)
    found = estimator.predict(data, feature_cols=names["feature_cols"])
    assert found["logits"].shape == (ROWS, 2)
    with pytest.raises(KeyError, match="feature_cols names 'ids', which is not there: there are 'input_ids'"):
        fit(estimator, data, feature_cols="ids", label_cols="labels")


def padded(rows):
    """As collators of transformers do it, with their kind of dict."""
    longest = max(len(row["input_ids"]) for row in rows)
    ids = [row["input_ids"] + [0] * (longest - len(row["input_ids"])) for row in rows]
    labels = [row["labels"] for row in rows]
    return transformers.BatchEncoding({"input_ids": ids, "labels": labels}, tensor_type="pt")


def test_loaders_pad_rows_of_unequal_length():
    cut = [row[: 4 + place % 5] for place, row in enumerate(columns()["input_ids"].tolist())]
    data = datasets.Dataset.from_dict({"input_ids": cut, "labels": columns()["labels"].tolist()})
    estimator = classifier()
    fit(estimator, torch.utils.data.DataLoader(data, batch_size=16, shuffle=True, collate_fn=padded))
    assert estimator.predict(table())["logits"].shape == (ROWS, 2)
    with pytest.raises(gp.DataError, match=r"'input_ids' differ in shape, such as \(\d,\) and \(\d,\): pad"):
        fit(estimator, data)


def test_streams_are_read_too():
    estimator, again = classifier(), classifier()
    fit(estimator, table().to_iterable_dataset(), epochs=2)
    fit(again, torch.utils.data.DataLoader(table().with_format("torch"), batch_size=16), epochs=2)
    assert estimator.digest() == again.digest()


def test_data_that_is_not_ready_is_named(trained):
    several = datasets.DatasetDict(train=table(), test=table())
    for data in (several, lambda config: datasets.DatasetDict(train=table(), test=table())):
        with pytest.raises(gp.DataError, match=r"holds 2 datasets \(train, test\): choose one, as in"):
            fit(trained, data)
    with pytest.raises(gp.DataError, match="column 'text' holds texts: turn them into numbers"):
        fit(trained, table(text=["a b"] * ROWS))
    for odd in ([None] * ROWS, [{"a": 1}] * ROWS):
        with pytest.raises(gp.DataError, match=r"column 'odd' holds what is no number \((dict|NoneType)\)"):
            fit(trained, table(odd=odd))


def test_all_rows_of_a_stream_have_the_same_columns(trained):
    def rows():
        for place, row in enumerate(table()):
            yield row if place != 5 else {name: row[name] for name in BERT}

    with pytest.raises(gp.DataError, match="some rows have a column 'labels' and others have not"):
        fit(trained, datasets.IterableDataset.from_generator(rows))


def test_labels_of_another_name_are_named():
    with pytest.raises(ValueError, match=r"pass loss=…, or call the column of targets 'labels'"):
        fit(classifier(), table().rename_column("labels", "label"))
