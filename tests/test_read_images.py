"""Images from folders, label files, Parquet and addresses."""

import functools
import http.server
import io
import json
import threading
import urllib.request

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from object_store import serving
from PIL import Image
from processes import PATIENCE

import grampus as gp

COUNT = 6


def png(number):
    pixels = np.full((4, 4, 3), number, dtype="uint8")
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def pictures(tmp_path):
    """Pictures of one colour each, which is their number."""
    folder = tmp_path / "train"
    folder.mkdir()
    for number in range(COUNT):
        (folder / f"00{number}.png").write_bytes(png(number))
    return folder


def pairs(shards):
    """Number of the picture and label of each row."""
    x, y = next(iter(shards.to_torch(100)))
    return [(int(image[0, 0, 0]), int(label)) for image, label in zip(x, y, strict=True)]


WANTED = [(number, 10 * number) for number in range(COUNT)]
# Not in the order of the files.
TURNED = list(reversed(range(COUNT)))


@pytest.mark.parametrize(
    "written",
    ["{root}/train/00{n}.png", "train/00{n}.png", "./train/00{n}.png", "00{n}.png", "train/00{n}", "00{n}"],
)
def test_labels_of_a_file(pictures, tmp_path, written):
    names = [written.format(root=tmp_path, n=number) for number in TURNED]
    rows = {"id": names, "label": [10 * number for number in TURNED]}
    (tmp_path / "l.csv").write_text(
        "id,label\n" + "".join(f"{a},{b}\n" for a, b in zip(*rows.values(), strict=True))
    )
    (tmp_path / "l.jsonl").write_text(
        "".join(json.dumps({"x": 1, "label": b, "id": a}) + "\n" for a, b in zip(*rows.values(), strict=True))
    )
    pq.write_table(pa.table(rows), tmp_path / "l.parquet")
    assert pairs(gp.read_images(pictures, label_file=tmp_path / "l.csv")) == WANTED
    assert pairs(gp.read_images(str(pictures / "*.png"), label_file=tmp_path / "l.parquet")) == WANTED
    named = gp.read_images(pictures, label_file=tmp_path / "l.jsonl", image_col="id", label_col="label")
    assert pairs(named) == WANTED


def test_labels_that_are_texts(pictures, tmp_path):
    rows = "".join(f"00{number},{'cat' if number % 2 else 'dog'}\n" for number in range(COUNT))
    (tmp_path / "l.csv").write_text("id,label\n" + rows)
    shards = gp.read_images(pictures, label_file=tmp_path / "l.csv")
    x, y = next(iter(shards.to_torch(COUNT, label_cols=gp.columns.OneHot("label", ["cat", "dog"]))))
    assert (tuple(x.shape), y.tolist()) == ((COUNT, 3, 4, 4), [[0.0, 1.0], [1.0, 0.0]] * 3)


def labelled(pictures, text, **options):
    file = pictures.parent / "l.csv"
    file.write_text(text)
    return gp.read_images(pictures, label_file=file, **options).collect()


def test_folders_of_a_label_file_are_no_columns_of_it(pictures, tmp_path):
    folder = tmp_path / "year=2024" / "set=a"
    folder.mkdir(parents=True)
    (folder / "l.csv").write_text("id,label\n" + "".join(f"00{row}.png,{row}\n" for row in range(COUNT)))
    shards = gp.read_images(pictures, label_file=folder / "l.csv")
    assert [int(label) for _, label in pairs(shards)] == list(range(COUNT))
    with_year = gp.read_images(pictures, label_file=folder / "l.csv", image_col="id", label_col="year")
    assert [int(label) for _, label in pairs(with_year)] == [2024] * COUNT


def test_wrong_label_files(pictures):
    rows = [f"00{number},1\n" for number in range(COUNT)]
    with pytest.raises(
        gp.DataError, match=r"l\.csv has no label for 5 of 6 images: .*001\.png, .*003\.png, …;"
    ):
        labelled(pictures, "id,label\n" + rows[0])
    with pytest.raises(gp.DataError, match=r"l\.csv: rows 1 and 6 both are of .*001\.png"):
        labelled(pictures, "id,label\n" + "".join(rows) + "001.png,1\n")
    (pictures / "001.jpg").write_bytes(png(1))
    with pytest.raises(gp.DataError, match=r"l\.csv, row 1: '001' may be .*001\.jpg, .*001\.png: write more"):
        labelled(pictures, "id,label\n" + "".join(rows))
    with pytest.raises(gp.DataError, match=r"l\.csv has the columns id, label, sex: name both"):
        labelled(pictures, "id,label,sex\n001,1,f\n")
    with pytest.raises(gp.DataError, match='there is no column "lable": do you mean "label"'):
        labelled(pictures, "id,label\n001,1\n", image_col="id", label_col="lable")
    with pytest.raises(gp.DataError, match="CSV, JSON-lines or Parquet"):
        gp.read_images(pictures, label_file=pictures / "l.xlsx").collect()
    with pytest.raises(gp.DataError, match="there is no such file"):
        gp.read_images(pictures, label_file=pictures / "none.csv").collect()
    with pytest.raises(ValueError, match="label_func makes labels of paths"):
        gp.read_images(pictures, label_file="l.csv", label_func=len)
    with pytest.raises(ValueError, match="label_col names a column of Parquet files"):
        gp.read_images(pictures, label_col="label")


def test_pictures_of_an_object_store(pictures, tmp_path, monkeypatch):
    with serving(monkeypatch, tmp_path / "log") as url:
        for number in range(40):
            place = f"{url}/bucket/pets/{'cat' if number % 2 else 'dog'}/{number:02}.png"
            put(place, png(number))
        table = gp.read_images("s3://bucket/pets").to_arrow()
        numbers = [*range(1, 40, 2), *range(0, 40, 2)]
        assert table["label"].to_pylist() == [0] * 20 + [1] * 20
        assert table["image"].to_pylist() == [png(number) for number in numbers]
        assert table["path"][0].as_py() == "s3://bucket/pets/cat/01.png"
        put(f"{url}/bucket/l.csv", b"id,label\n" + b"".join(b"%02d,%d\n" % (n, n) for n in range(40)))
        some = gp.read_images("s3://bucket/pets/dog/0*.png", label_file="s3://bucket/l.csv")
        assert pairs(some) == [(number, number) for number in (0, 2, 4, 6, 8)]
        with pytest.raises(gp.DataError, match=r"s3://bucket/none: there is no such file"):
            gp.read_images("s3://bucket/none").collect()


def put(url, data):
    # Without a type it would be a form.
    headers = {"Content-Type": "application/octet-stream"}
    request = urllib.request.Request(url, data=data, headers=headers, method="PUT")
    urllib.request.urlopen(request, timeout=PATIENCE).close()


def test_pictures_of_a_web_site(pictures):
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    handler = functools.partial(Quiet, directory=str(pictures))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            base = f"http://127.0.0.1:{server.server_address[1]}"
            names = [f"{base}/00{number}.png" for number in range(COUNT)]
            shards = gp.read_images(names, label_func=lambda path: int(path[-5]))
            assert pairs(shards) == [(number, number) for number in range(COUNT)]
            with pytest.raises(gp.DataError, match=r"/no\.png: there is no such file"):
                gp.read_images([*names, f"{base}/no.png"]).collect()
        finally:
            server.shutdown()
            thread.join(PATIENCE)
