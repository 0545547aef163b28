"""Pictures for the tests of the processor `pooled_crops`, and what transformers 5.23.0 makes of them.

    pip install torch torchvision transformers==5.23.0 pillow blake3
    python make.py

Writes the picture files beside this script and `expected.json`: settings, grids, crops, pooling windows, the tokens of each
picture, and the digest (BLAKE3) of its pixels as bytes, patch by patch, before they are rescaled. torch 2.15.0, torchvision 0.29.2, pillow 13.0.0.
"""

import json
import pathlib

import numpy as np
import torch
from blake3 import blake3
from PIL import Image, ImageOps
from transformers.models.molmo2.image_processing_molmo2 import Molmo2ImageProcessor
from transformers.models.molmo2.processing_molmo2 import Molmo2Processor

HERE = pathlib.Path(__file__).parent
rng = np.random.default_rng(20)


def scene(height, width, channels, top=255, dtype=np.uint8, noise=0.15):
    """Smooth waves with some noise: neighbours differ, nothing is constant."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [np.sin(x / (3 + 2 * c) + c) + np.cos(y / (5 + c)) + rng.normal(0, noise, (height, width)) for c in range(channels)]
    picture = np.stack(planes, -1)
    picture = (picture + 2.6) / 5.2 * top
    return np.clip(np.rint(picture), 0, top).astype(dtype)


def save(name, image, **options):
    image.save(HERE / name, **options)
    return name


def exif(orientation):
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags


rgb = lambda h, w: Image.fromarray(scene(h, w, 3))
# Of more than 128 pixels along both sides together: torch has another kernel for less, which rounds otherwise.
SMALL = dict(size={"height": 70, "width": 70}, patch_size=14, overlap_margins=[1, 1], max_crops=6, pooling_size=[2, 2])
ODD = dict(size={"height": 84, "width": 84}, patch_size=14, overlap_margins=[1, 2], max_crops=5, pooling_size=[3, 2])
RELEASED = dict()

# Few levels, so that a large file is small.
flat = lambda h, w: Image.fromarray(scene(h, w, 3, noise=0) // 32 * 36)

# Decoders of JPEG round otherwise; these are compared as decoded.
JPEGS = [
    ("photo.jpg", rgb(75, 100), {"quality": 90, "subsampling": 0}),
    ("photo420.jpg", rgb(64, 96), {"quality": 80}),
    ("grey.jpg", Image.fromarray(scene(48, 64, 1)[..., 0]), {"quality": 90}),
    ("turned6.jpg", rgb(40, 72), {"exif": exif(6), "quality": 95, "subsampling": 0}),
]

PICTURES = [
    ("pixel.png", Image.fromarray(scene(1, 1, 3)), {}, SMALL, "one pixel"),
    ("square.png", rgb(70, 70), {}, SMALL, "exactly one crop"),
    ("margins.png", rgb(28, 40), {}, SMALL, "as high as the margins: nothing is left to tile"),
    ("wide.png", rgb(30, 260), {}, SMALL, "wider than any tiling"),
    ("tall.png", rgb(300, 24), {}, SMALL, "taller than any tiling"),
    ("landscape.png", rgb(80, 120), {}, SMALL, "between two tilings"),
    ("large.png", rgb(190, 170), {}, SMALL, "larger than every tiling: made smaller"),
    ("line.png", rgb(1, 97), {}, SMALL, "one row of pixels"),
    ("grey.png", Image.fromarray(scene(61, 83, 1)[..., 0]), {}, SMALL, "grey"),
    ("grey_alpha.png", Image.fromarray(scene(44, 52, 2), "LA"), {}, SMALL, "grey with alpha"),
    ("rgba.png", Image.fromarray(scene(70, 64, 4)), {}, SMALL, "alpha: blended onto white"),
    ("palette.png", rgb(66, 90).quantize(13), {}, SMALL, "a palette"),
    ("palette_clear.png", rgb(40, 50).quantize(9), {"transparency": 3}, SMALL, "a palette with a transparent colour"),
    ("rgba_palette.png", Image.fromarray(scene(40, 44, 4)).quantize(16), {}, SMALL, "a palette with an alpha for each colour"),
    ("key.png", rgb(36, 40), {"transparency": (1, 2, 3)}, SMALL, "one colour is transparent"),
    ("bilevel.png", Image.fromarray(scene(33, 47, 1)[..., 0]).convert("1"), {}, SMALL, "one bit"),
    ("grey16.png", Image.fromarray(scene(50, 60, 1, 65535, np.uint16)[..., 0]), {}, SMALL, "16 bits, grey (Pillow clips each sample to 255; here, as in colour, the upper eight bits count)"),
    ("rgb16.png", None, {}, SMALL, "16 bits, colour"),
    *[(f"turned{o}.png", rgb(42, 70), {"exif": exif(o)}, SMALL, f"EXIF orientation {o}") for o in range(2, 9)],
    ("picture.webp", rgb(50, 70), {"lossless": True}, SMALL, "WebP"),
    ("clear.gif", rgb(30, 45).quantize(30), {"transparency": 4}, SMALL, "a GIF with a transparent colour"),
    ("rgba.webp", Image.fromarray(scene(50, 34, 4)), {"lossless": True, "exact": True}, SMALL, "WebP with alpha"),
    ("still.gif", rgb(45, 45).quantize(30), {}, SMALL, "a GIF of one frame"),
    ("picture.bmp", rgb(39, 51), {}, SMALL, "BMP"),
    ("odd.png", rgb(150, 210), {}, ODD, "uneven margins; windows of 3 x 2 that do not fill the grid"),
    ("released_one.png", flat(378, 378), {}, RELEASED, "the released settings, one crop and the view of the whole"),
    ("released_many.png", flat(500, 900), {}, RELEASED, "the released settings, many crops"),
]


def rgb16_png(path):
    """Pillow reads 16 bit colour but does not write it."""
    import struct, zlib

    pixels = scene(37, 58, 3, 65535, np.uint16)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    head = struct.pack(">IIBBBBB", 58, 37, 16, 2, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b""))


class Tokens:
    """What `replace_image_token` reads of a processor."""

    def __init__(self, columns, low_columns, low_start):
        self.image_use_col_tokens, self.use_single_crop_col_tokens, self.use_single_crop_start_token = columns, low_columns, low_start


def main():
    cases = []
    for name, image, options, settings, what in PICTURES:
        if image is None:
            rgb16_png(HERE / name)
        else:
            save(name, image, **options)
        processor = Molmo2ImageProcessor(**settings)
        read = ImageOps.exif_transpose(Image.open(HERE / name))
        if name == "grey16.png":
            read = Image.fromarray((np.asarray(read) >> 8).astype(np.uint8))
        made = processor(read, return_tensors="pt")
        pixels = made["pixel_values"]
        as_bytes = torch.round(pixels.double() * 127.5 + 127.5)
        again = (as_bytes.float() - 127.5) / 127.5
        assert float((again - pixels).abs().max()) == 0.0, float((again - pixels).abs().max())
        as_bytes = as_bytes.to(torch.uint8).numpy()
        flags = {"columns": (True, None, True), "no_columns": (False, None, True), "plain_start": (True, False, False)}
        grid = made["image_grids"][0]
        tokens = {key: Molmo2Processor.replace_image_token(Tokens(*value), {"image_grids": [grid]}, 0) for key, value in flags.items()}
        case = {
            "file": name,
            "what": what,
            "settings": settings,
            "grid": grid.tolist(),
            "crops": int(made["image_num_crops"][0]),
            "pixels_shape": list(pixels.shape),
            "pixels_blake3": blake3(as_bytes.tobytes()).hexdigest(),
            "pooling_shape": list(made["image_token_pooling"].shape),
            "pooling_blake3": blake3(made["image_token_pooling"].to(torch.int32).numpy().tobytes()).hexdigest(),
            "tokens_blake3": {key: blake3(text.encode()).hexdigest() for key, text in tokens.items()},
        }
        if name == "landscape.png":
            case["pooling"] = made["image_token_pooling"].tolist()
            case["tokens"] = tokens
        cases.append(case)
        print(name, case["grid"], case["crops"], case["pixels_shape"], case["pooling_shape"])
    for name, image, options in JPEGS:
        save(name, image, **options)
        ImageOps.exif_transpose(Image.open(HERE / name)).convert("RGB").save(HERE / f"{name}.decoded.png")
    text = json.dumps({"cases": cases}, indent=1)
    (HERE / "expected.json").write_text(text + "\n")


main()
