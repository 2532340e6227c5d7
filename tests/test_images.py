"""Images from their files to numbers, held against Pillow."""

import io
import json
import struct
import subprocess
import sys
import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image, ImageOps, PngImagePlugin

import grampus as gp
from grampus import _native
from grampus.images import (
    CenterCrop,
    Channels,
    ChannelsLast,
    Normalize,
    RandomCrop,
    RandomFlip,
    RandomResizedCrop,
    Resize,
    ToFloat,
    pipeline,
)


def encoded(picture: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def decoded(
    images: list[bytes], *steps: gp.images.ImageStep, row: int = 0, epoch: int = 0, threads: int = 1
) -> np.ndarray:
    """The batch, channels last unless it is of floats."""
    floats = any(isinstance(step, (ToFloat, Normalize)) for step in steps)
    text = pipeline([*steps] if floats else [*steps, ChannelsLast()])
    shape, numbers = _native.decode_images(images, text, 42, epoch, row, threads)
    return np.frombuffer(numbers, np.float32 if floats else np.uint8).reshape(shape)


def photo(width: int, height: int) -> Image.Image:
    """Smooth colours with edges and a little noise, as photographs have."""
    y, x = np.mgrid[0:height, 0:width] / max(width, height)
    planes = [np.sin(5 * x + 3 * y), np.cos(7 * y), (x + y > 0.8) * 1.5 - 0.7]
    noise = np.random.default_rng(0).normal(0, 4, (height, width, 3))
    return Image.fromarray((np.stack(planes, 2) * 90 + 128 + noise).clip(0, 255).astype(np.uint8))


def pillow(file: bytes, mode: str = "RGB") -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(file)).convert(mode)).astype(int)


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("size", [(64, 48), (61, 33), (7, 5), (1, 1), (30, 20)])
def test_a_jpeg_is_as_near_to_pillow_as_decoders_are(size, progressive, subsampling):
    file = encoded(photo(*size), "JPEG", quality=90, subsampling=subsampling, progressive=progressive)
    difference = np.abs(decoded([file])[0] - pillow(file))
    # At the last row and column the decoder interpolates colours with what the file has beyond them.
    assert difference.max() <= 8, difference.max()
    inside = difference[:-1, :-1]
    # A level in the colours, where they are interpolated, is nearly two in blue.
    assert (inside <= 4).all()
    assert (inside > 2).sum() <= 0.01 * inside.size
    assert difference.mean() < 0.7


def test_a_gray_jpeg_and_the_brightness_of_a_coloured_one():
    gray = encoded(photo(40, 30).convert("L"), "JPEG", quality=90)
    assert np.abs(decoded([gray])[0] - pillow(gray)).max() <= 2
    assert np.abs(decoded([gray], Channels("gray"))[0, ..., 0] - pillow(gray, "L")).max() <= 2
    coloured = encoded(photo(41, 31), "JPEG", quality=90)
    # Pillow rounds twice, to RGB and to gray.
    assert np.abs(decoded([coloured], Channels("gray"))[0, ..., 0] - pillow(coloured, "L")).max() <= 3


def test_a_cmyk_jpeg():
    file = encoded(photo(40, 30).convert("CMYK"), "JPEG", quality=95)
    assert np.abs(decoded([file])[0] - pillow(file)).max() <= 2
    assert np.abs(decoded([file], Channels("gray"))[0, ..., 0] - pillow(file, "L")).max() <= 2


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA", "P", "1"])
def test_a_png_is_exact(mode):
    file = encoded(photo(33, 20).convert(mode), "PNG")
    assert np.array_equal(decoded([file])[0], pillow(file))


def test_a_palette_with_a_transparent_colour():
    picture = photo(20, 20).quantize(5)
    file = encoded(picture, "PNG", transparency=2, bits=4)
    assert np.array_equal(decoded([file])[0], np.asarray(picture.convert("RGB")))


def png_16(colour: int, samples: np.ndarray) -> bytes:
    """A PNG of 16 bits a sample, which Pillow writes for gray alone."""
    height, width = samples.shape[:2]
    lines = samples.astype(">u2").reshape(height, -1)
    return png(
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 16, colour, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"".join(b"\0" + line.tobytes() for line in lines))),
        (b"IEND", b""),
    )


def png(*chunks: tuple[bytes, bytes]) -> bytes:
    whole = [
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(whole)


@pytest.mark.parametrize(("colour", "channels"), [(0, 1), (4, 2), (2, 3), (6, 4)])
def test_sixteen_bits_are_what_pillow_makes_of_them(colour, channels):
    draw = np.random.default_rng(colour)
    samples = draw.integers(0, 65536, (20, 30, channels))
    samples[:10] //= 200
    file = png_16(colour, samples)
    assert np.array_equal(decoded([file])[0], pillow(file))
    assert np.array_equal(decoded([file], Channels("gray"))[0, ..., 0], pillow(file, "L"))


@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_a_lossless_webp_is_exact_and_a_lossy_one_is_near(mode):
    picture = photo(33, 20).convert(mode)
    file = encoded(picture, "WEBP", lossless=True, exact=True)
    assert np.array_equal(decoded([file])[0], np.asarray(picture)[..., :3])
    file = encoded(picture, "WEBP", quality=90)
    difference = np.abs(decoded([file])[0] - pillow(file))
    assert difference.mean() < 1 and difference.max() <= 8


def upright(file: bytes, mode: str = "RGB") -> np.ndarray:
    picture = ImageOps.exif_transpose(Image.open(io.BytesIO(file)))
    return np.asarray(picture.convert(mode)).astype(int)


@pytest.mark.parametrize("orientation", range(10))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_pictures_stand_upright_as_exif_says(kind, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"JPEG": {"quality": 90, "subsampling": 0}, "PNG": {}, "WEBP": {"lossless": True}}[kind]
    file = encoded(photo(30, 20), kind, exif=exif, **options)
    found, wanted = decoded([file])[0], upright(file)
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= (2 if kind == "JPEG" else 0)
    gray = decoded([file], Channels("gray"))[0, ..., 0]
    assert np.abs(gray - upright(file, "L")).max() <= (3 if kind == "JPEG" else 0)
    # Steps work on the upright picture.
    assert np.array_equal(decoded([file], CenterCrop(8))[0], decoded([file])[0][middle(found)])


def middle(picture: np.ndarray) -> tuple[slice, slice]:
    top, left = (picture.shape[0] - 8) // 2, (picture.shape[1] - 8) // 2
    return slice(top, top + 8), slice(left, left + 8)


def test_exif_may_stand_behind_the_pixels_of_a_png():
    exif = Image.Exif()
    exif[0x0112] = 6
    file = encoded(photo(30, 20), "PNG", exif=exif)
    start = file.index(b"eXIf") - 4
    stop = start + 12 + struct.unpack(">I", file[start : start + 4])[0]
    chunk, rest = file[start:stop], file[:start] + file[stop:]
    file = rest[:-12] + chunk + rest[-12:]
    assert decoded([file]).shape == (1, 30, 20, 3)
    assert np.array_equal(decoded([file])[0], upright(file))


def tiff(*entries: bytes, order: str = "<") -> bytes:
    head = b"II*\0" if order == "<" else b"MM\0*"
    return head + struct.pack(order + "IH", 8, len(entries)) + b"".join(entries) + bytes(4)


def entry(kind: int, count: int, value: bytes, order: str = "<") -> bytes:
    return struct.pack(order + "HHI", 0x0112, kind, count) + value.ljust(4, b"\0")


SHORT_6 = entry(3, 1, b"\x06\0")
TIFFS = {
    "byte": tiff(entry(1, 1, b"\x06")),
    "text": tiff(entry(2, 1, b"6")),
    "short": tiff(SHORT_6),
    "long": tiff(entry(4, 1, b"\x06\0")),
    "big long": tiff(entry(4, 1, b"\0\0\0\x06", ">"), order=">"),
    "signed": tiff(entry(6, 1, b"\x06")),
    "signed short": tiff(entry(8, 1, b"\x06")),
    "signed long": tiff(entry(9, 1, b"\x06")),
    "directory": tiff(entry(13, 1, b"\x06")),
    "two shorts": tiff(entry(3, 2, b"\x06\0\x03\0")),
    "long elsewhere": tiff(entry(4, 2, b"\x1a")) + struct.pack("<II", 6, 3),
    "beyond": tiff(entry(4, 2, b"\xff")),
    "none, then short": tiff(entry(3, 0, b"\x03"), SHORT_6),
    "unknown, then short": tiff(entry(99, 1, b"\x03"), SHORT_6),
    "byte, then short": tiff(entry(1, 1, b"\x03"), SHORT_6),
    "negative": tiff(entry(9, 1, b"\xff\xff\xff\xff")),
    "cut": tiff(SHORT_6)[:-2],
    "mark twice": b"Exif\0\0" + tiff(SHORT_6),
}
FRAME = 'xmlns:tiff="http://ns.adobe.com/tiff/1.0/" %s><x/>'
XMPS = {
    "attribute": FRAME % 'tiff:Orientation="6"',
    "element": "<tiff:Orientation>6</tiff:Orientation>",
    "first": "tiff:Orientation=6 tiff:Orientation>8< tiff:Orientation>3<",
    "other quotes": "tiff:Orientation='6'",
    "none": "tiff:Orientation>x",
    "zero": 'tiff:Orientation="0"',
    "end": "tiff:Orientation=",
}


def with_notes(kind: str, exif: bytes | None, xmp: str | None) -> bytes:
    """A picture with these notes, and no others."""
    options: dict[str, Any] = {"JPEG": {"quality": 90}, "PNG": {}, "WEBP": {"lossless": True}}[kind]
    if exif is not None:
        options["exif"] = b"Exif\0\0" + exif
    if xmp is not None and kind == "PNG":
        options["pnginfo"] = PngImagePlugin.PngInfo()
        options["pnginfo"].add_itxt("XML:com.adobe.xmp", xmp)
    elif xmp is not None:
        options["xmp"] = xmp.encode()
    return encoded(photo(30, 20), kind, **options)


def check_upright(file: bytes) -> None:
    found, wanted = decoded([file])[0], upright(file)
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= (8 if file.startswith(b"\xff\xd8") else 0)


@pytest.mark.filterwarnings("ignore:.*(EXIF|too many entries|Truncated|enough|read)")
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("name", TIFFS)
def test_orientations_of_every_type(kind, name):
    check_upright(with_notes(kind, TIFFS[name], None))
    # XMP counts where EXIF names none.
    check_upright(with_notes(kind, TIFFS[name], XMPS["attribute"]))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("name", XMPS)
def test_orientations_of_xmp(kind, name):
    file = with_notes(kind, None, XMPS[name])
    check_upright(file)
    assert (decoded([file]).shape[1] == 30) == (name in ("attribute", "element", "first"))
    check_upright(with_notes(kind, tiff(), XMPS[name]))
    check_upright(with_notes(kind, TIFFS["short"], XMPS[name]))


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("end", ["", "zz", " \n 0"], ids=["whole", "no number", "odd"])
def test_orientations_of_raw_profiles(zipped, end):
    notes = PngImagePlugin.PngInfo()
    exif = b"Exif\0\0" + TIFFS["short"]
    digits = exif.hex()
    text = "\n".join(digits[start : start + 36] for start in range(0, len(digits), 36))
    notes.add_text("Raw profile type exif", f"\nexif\n{len(exif):8}\n{text}\n{end}", zip=zipped)
    file = encoded(photo(30, 20), "PNG", pnginfo=notes)
    if end:
        # Pillow raises; the picture is there all the same.
        assert np.array_equal(decoded([file])[0], pillow(file))
    else:
        check_upright(file)
        assert decoded([file]).shape == (1, 30, 20, 3)
        # An eXIf chunk counts before it.
        check_upright(encoded(photo(30, 20), "PNG", pnginfo=notes, exif=b"Exif\0\0" + TIFFS["byte"]))


def test_texts_that_grow_when_they_are_unpacked_are_left_out():
    notes = PngImagePlugin.PngInfo()
    notes.add_itxt("XML:com.adobe.xmp", XMPS["attribute"] + " " * (1 << 21), zip=True)
    file = encoded(photo(30, 20), "PNG", pnginfo=notes)
    with pytest.raises(ValueError, match="too large"):
        Image.open(io.BytesIO(file))
    assert decoded([file]).shape == (1, 20, 30, 3)


def test_exif_of_a_jpeg_may_stand_in_several_segments():
    exif = tiff(entry(4, 2, struct.pack("<I", 26))) + struct.pack("<II", 6, 3)
    segments = [b"Exif\0\0" + part for part in (exif[:20], exif[20:])]
    file = encoded(photo(30, 20), "JPEG", quality=90)
    added = b"".join(b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body for body in segments)
    file = file[:2] + added + file[2:]
    check_upright(file)
    assert decoded([file]).shape == (1, 30, 20, 3)


def test_notes_of_a_webp_count_where_its_flags_name_them():
    file = bytearray(with_notes("WEBP", TIFFS["short"], None))
    at = file.index(b"VP8X") + 8
    file[at] &= ~0x08
    check_upright(bytes(file))


@pytest.mark.parametrize("size", [(20, 30), (100, 80), (48, 64), (7, 90), (1, 1)])
def test_a_resize_is_within_one_level_of_pillow(size):
    picture = photo(64, 48)
    expected = np.asarray(picture.resize(size[::-1], Image.Resampling.BILINEAR)).astype(int)
    assert np.abs(decoded([encoded(picture, "PNG")], Resize(size))[0] - expected).max() <= 1
    gray = picture.convert("L")
    expected = np.asarray(gray.resize(size[::-1], Image.Resampling.BILINEAR)).astype(int)
    found = decoded([encoded(gray, "PNG")], Resize(size), Channels("gray"))[0, ..., 0]
    assert np.abs(found - expected).max() <= 1


def test_resize_and_center_crop_as_for_imagenet():
    picture = photo(133, 80)
    small = picture.resize((int(64 * 133 / 80), 64), Image.Resampling.BILINEAR)
    left, top = round((small.width - 56) / 2), round((64 - 56) / 2)
    expected = np.asarray(small.crop((left, top, left + 56, top + 56))).astype(int)
    assert np.abs(decoded([encoded(picture, "PNG")], Resize(64), CenterCrop(56))[0] - expected).max() <= 1


def test_floats_are_those_of_the_formula():
    samples = np.arange(256, dtype=np.uint8).reshape(16, 16)
    file = encoded(Image.fromarray(samples), "PNG")
    floats = decoded([file], ToFloat(), Channels("gray"))
    assert np.array_equal(floats, samples[None, None].astype(np.float32) / np.float32(255))
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    floats = decoded([file], Normalize(mean, std))
    assert floats.shape == (1, 3, 16, 16)
    for channel in range(3):
        expected = (samples / 255 - mean[channel]) / std[channel]
        np.testing.assert_allclose(floats[0, channel], expected, rtol=1e-6, atol=1e-7)
    assert decoded([file], ToFloat(scale=2), Channels("gray")).max() == 510


def test_bgr_is_rgb_turned_round():
    file = encoded(photo(9, 7), "PNG")
    assert np.array_equal(decoded([file], Channels("bgr")), decoded([file])[..., ::-1])


def test_what_is_random_depends_on_the_row_and_the_epoch_and_on_nothing_else():
    files = [encoded(photo(20, 16 + number), "PNG") for number in range(12)]
    steps = (RandomResizedCrop(12), RandomCrop(12, padding=3), RandomFlip())
    batch = decoded(files, *steps, row=100)
    assert np.array_equal(batch, decoded(files, *steps, row=100, threads=5))
    alone = [decoded([file], *steps, row=100 + number)[0] for number, file in enumerate(files)]
    assert np.array_equal(batch, np.stack(alone))
    assert not np.array_equal(batch, decoded(files, *steps, row=100, epoch=1))
    assert not np.array_equal(batch, decoded(files, *steps, row=101))


def test_a_random_crop_shows_the_image_with_a_black_border():
    picture = np.random.default_rng(1).integers(1, 256, (8, 8, 3), dtype=np.uint8)
    padded = np.pad(picture, ((2, 2), (2, 2), (0, 0)))
    file = encoded(Image.fromarray(picture), "PNG")
    places = {padded[y : y + 8, x : x + 8].tobytes(): (x, y) for x in range(5) for y in range(5)}
    batch = decoded([file] * 400, RandomCrop(8, padding=2))
    assert {places[image.tobytes()] for image in batch} == set(places.values())
    assert np.array_equal(decoded([file], RandomFlip(1))[0], picture[:, ::-1])


def damaged_png() -> bytes:
    file = bytearray(encoded(photo(40, 30), "PNG"))
    file[len(file) // 2] ^= 0xFF
    return bytes(file)


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (b"", "no bytes"),
        (b"not an image", "begins with 6e 6f 74 20"),
        (encoded(photo(9, 9), "GIF"), "is a GIF file, which Grampus does not read: give JPEG"),
        (encoded(photo(9, 9), "BMP"), "is a BMP file, which Grampus does not read"),
        (encoded(photo(9, 9), "TIFF"), "is a TIFF file, which Grampus does not read"),
        (encoded(photo(40, 30), "JPEG")[:-60], "JPEG file is damaged: it is cut short"),
        (encoded(photo(40, 30), "JPEG")[:100], "JPEG file is damaged"),
        (encoded(photo(40, 30), "PNG")[:-60], "PNG file is damaged"),
        (encoded(photo(40, 30), "WEBP")[:-60], "WebP file is damaged"),
        (damaged_png(), "PNG file is damaged"),
    ],
)
def test_a_damaged_file_is_an_error_that_names_it(file, reason):
    good = encoded(photo(40, 30), "JPEG")
    with pytest.raises(ValueError, match=f"^image 1: .*{reason}"):
        decoded([good, file])


def huge_png() -> bytes:
    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    return png((b"IHDR", header), (b"IDAT", zlib.compress(b"\0")))


def huge_jpeg() -> bytes:
    file = bytearray(encoded(photo(8, 8), "JPEG"))
    frame = file.index(b"\xff\xc0")
    file[frame + 5 : frame + 9] = struct.pack(">HH", 60_000, 60_000)
    return bytes(file)


def huge_webp() -> bytes:
    side = (60_000 - 1).to_bytes(3, "little")
    return b"RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0" + side + side


@pytest.mark.parametrize("file", [huge_png(), huge_jpeg(), huge_webp()], ids=["png", "jpeg", "webp"])
def test_a_small_file_that_claims_a_huge_image_is_refused(file):
    assert len(file) < 1000
    with pytest.raises(ValueError, match="60000 x 60000 pixels, over the limit of 89478485"):
        decoded([file])


def nested_webp(depth: int) -> bytes:
    """Frames of an animation, each within the one before."""
    body = b""
    for _ in range(depth):
        body = b"ANMF" + struct.pack("<I", 16 + len(body)) + bytes(16) + body
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WEBP" + body


def test_a_deeply_nested_webp_is_refused_and_ends_no_process():
    file = nested_webp(14_000)
    assert len(file) < 340_000
    script = (
        "import sys\nfrom grampus import _native\nfrom grampus.images import pipeline\n"
        "try:\n    _native.decode_images([sys.stdin.buffer.read()], pipeline([]), 0, 0, 0, 1)\n"
        "except ValueError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], input=file, capture_output=True, timeout=50)
    assert done.returncode == 0, done.stderr[-300:]
    assert done.stdout.startswith(
        b"image 0: the WebP file is damaged: it has an animation frame (ANMF) within"
    )


def test_an_error_in_a_table_names_the_row_of_the_image():
    rows = pa.table({"image": [encoded(photo(8, 8), "PNG"), nested_webp(14_000)], "label": [0, 1]})
    batches = gp.Shards.from_arrow(rows, 1).to_torch(
        2, feature_cols=gp.columns.Image("image", [Resize(8)]), label_cols="label"
    )
    with pytest.raises(gp.DataError, match='shard 0, row 1, column "image": the WebP file is damaged'):
        next(iter(batches))
    gifs = gp.Shards.from_arrow(pa.table({"image": [encoded(photo(8, 8), "GIF")], "label": [0]}), 1)
    with pytest.raises(gp.DataError, match='shard 0, row 0, column "image": the image is a GIF file'):
        gifs.to_torch(1, feature_cols=gp.columns.Image("image"), label_cols="label")


def test_images_of_different_sizes_need_a_step_that_makes_them_equal():
    files = [encoded(photo(8, 8), "PNG"), encoded(photo(9, 8), "PNG")]
    with pytest.raises(ValueError, match=r"image 1: .* 9 x 8 pixels.*add a resize or a crop"):
        decoded(files)
    assert decoded(files, CenterCrop(8)).shape == (2, 8, 8, 3)
    with pytest.raises(ValueError, match="depends on the image"):
        decoded([])
    assert decoded([], CenterCrop(8)).shape == (0, 8, 8, 3)


def test_steps_say_what_is_wrong_with_them():
    with pytest.raises(TypeError, match="image step 2 is 'flip': give steps of grampus"):
        pipeline([RandomFlip(), "flip"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="image step 2: ToFloat can be given only once"):
        pipeline([ToFloat(), ToFloat()])
    with pytest.raises(
        ValueError, match=r"RandomCrop\(size=2.5.*: size is a whole number, or \(height, width\)"
    ):
        pipeline([RandomCrop(2.5)])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'rgb', 'bgr' or 'gray'"):
        pipeline([Channels("hsv")])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="mean takes numbers"):
        pipeline([Normalize("a", 1)])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="scale is two numbers, from and to"):
        pipeline([RandomResizedCrop(8, scale=(1,))])  # type: ignore[arg-type]
    file = encoded(photo(8, 8), "PNG")
    with pytest.raises(ValueError, match="image step 1: a side of 0 pixels"):
        decoded([file], Resize(0))
    with pytest.raises(ValueError, match="image output: 2 numbers as mean for 3 channels"):
        decoded([file], Normalize([1, 2], 1))
    with pytest.raises(ValueError, match="probability of 2"):
        decoded([file], RandomFlip(2))
    with pytest.raises(ValueError, match=r"image 0: .* 8 x 8 pixels .* crop of 9 x 9"):
        decoded([file], RandomCrop(9))


def test_the_text_of_a_pipeline():
    text = pipeline(
        [RandomCrop((3, 4), padding=1), Normalize(0.5, (1, 2, 3)), ToFloat(0.25), Channels("bgr")]
    )
    assert json.loads(text) == {
        "steps": [{"step": "random_crop", "width": 4, "height": 3, "padding": 1}],
        "output": {"kind": "f32", "mean": [0.5], "std": [1, 2, 3], "scale": 0.25, "channels": "bgr"},
    }
