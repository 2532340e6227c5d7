"""Fine-tune a small BERT of Hugging Face on two workers.

Run it with `python examples/finetune.py` where grampus is installed with torch, transformers and datasets.
The task is made on the spot: which of the words "sun" and "moon" comes first in a sentence? Model and data
are as their libraries have them: the model makes its own loss from the column `labels`, and what was trained
is read by `from_pretrained`. To begin with weights of the hub, let `model_creator` return
`BertForSequenceClassification.from_pretrained("bert-base-uncased")`, and use its tokenizer. One sees a
line for each epoch, how many of 500 new sentences are judged right, and an answer of the saved model.
"""

import argparse
import random
import time

from datasets import Dataset
from transformers import BertConfig, BertForSequenceClassification

import grampus as gp

PLACES = ["over", "under", "beside", "river", "tree", "stone"]
WORDS = ["the", "a", "old", "small", "bright", "cold", "bird", "rises", "falls", "sleeps", *PLACES]
VOCABULARY = {word: number for number, word in enumerate(["[PAD]", "[CLS]", "sun", "moon", *WORDS])}
LONGEST = 12


def sentences(count, seed):
    """Sentences in which both words stand somewhere, and whether the sun comes first."""
    draw = random.Random(seed)
    texts, labels = [], []
    for _ in range(count):
        words = draw.choices(WORDS, k=draw.randint(4, LONGEST - 3))
        sun, moon = sorted(draw.sample(range(len(words) + 2), 2), reverse=draw.random() < 0.5)
        for place, word in sorted([(sun, "sun"), (moon, "moon")]):
            words.insert(place, word)
        texts.append(" ".join(words))
        labels.append(int(sun < moon))
    return Dataset.from_dict({"text": texts, "labels": labels})


def tokenize(batch):
    """Numbers for words, as many in each row."""
    ids = [[VOCABULARY[word] for word in ("[CLS]", *text.split())] for text in batch["text"]]
    return {
        "input_ids": [row + [0] * (LONGEST - len(row)) for row in ids],
        "attention_mask": [[1] * len(row) + [0] * (LONGEST - len(row)) for row in ids],
    }


def prepared(count, seed):
    return sentences(count, seed).map(tokenize, batched=True, remove_columns="text")


def model_creator(config):
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=len(VOCABULARY),
            hidden_size=config["hidden"],
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=2 * config["hidden"],
            max_position_embeddings=LONGEST,
        )
    )


def arguments():
    parser = argparse.ArgumentParser(description="Fine-tune a small BERT, on several workers.")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32, help="over all workers together")
    parser.add_argument("--lr", type=float, default=0.002, help="learning rate")
    parser.add_argument("--rows", type=int, default=2000, help="sentences to train on")
    parser.add_argument("--out", metavar="DIR", default="finetuned", help="folder for the trained model")
    return parser.parse_args()


def main():
    args = arguments()
    began = time.perf_counter()
    train, test = prepared(args.rows, seed=0), prepared(500, seed=1)
    gp.init(args.workers)
    estimator = gp.Estimator.from_torch(
        model=model_creator,
        optimizer="adamw",
        metrics=[gp.metrics.Accuracy()],
        config={"hidden": 32, "lr": args.lr},
    )
    history = estimator.fit(train, epochs=args.epochs, batch_size=args.batch_size, validation_data=test)
    found = estimator.evaluate(test, batch_size=250)
    estimator.save(args.out, format="pretrained")
    gp.stop()
    print(history)
    print(f"accuracy: {found['accuracy']:.2%} of {found['num_samples']} sentences")
    model = BertForSequenceClassification.from_pretrained(args.out).eval()
    question = "the old moon sleeps beside the bright sun"
    asked = Dataset.from_list([{"text": question}]).map(tokenize, batched=True, remove_columns="text")
    answer = model(**asked.with_format("torch")[:]).logits.argmax().item()
    print(f"{question}: {('the moon', 'the sun')[answer]} comes first")
    print(f"{time.perf_counter() - began:.0f} s in all")


if __name__ == "__main__":
    main()
