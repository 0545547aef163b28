"""What transformers 5.23.0 makes of the requests of `tests/pictures.rs`: ids, types and the greedy answer, in `expected.json`.

    pip install torch torchvision transformers==5.23.0 pillow
    SMALL_VLM=DIR cargo test -p mlxcel --test pictures -- --ignored checkpoint
    python make.py DIR

torch 2.10.0, torchvision 0.25.0, float32 with eager attention on the CPU.
"""

import json
import pathlib
import sys
import tempfile

import torch
from PIL import Image, ImageOps
from safetensors.torch import load_file
from transformers import PreTrainedTokenizerFast
from transformers.models.molmo2.image_processing_molmo2 import Molmo2ImageProcessor
from transformers.models.molmo2.modeling_molmo2 import Molmo2ForConditionalGeneration
from transformers.models.molmo2.processing_molmo2 import Molmo2Processor
from transformers.models.molmo2.video_processing_molmo2 import Molmo2VideoProcessor

HERE = pathlib.Path(__file__).resolve().parent
PICTURES = HERE.parents[1] / "runtime/pictures/tests/pooled_crops"
TOKENS = 6


IMAGE = {"type": "image"}


def text(words):
    return {"type": "text", "text": words}


# What is said, picture files, and whether it goes through the template.
REQUESTS = [
    ("two pictures before a question", ["photo.jpg", "rgba.png"],
     [{"role": "user", "content": [IMAGE, IMAGE, text("Describe both in one sentence each.")]}]),
    ("the same, exchanged", ["rgba.png", "photo.jpg"],
     [{"role": "user", "content": [IMAGE, IMAGE, text("Describe both in one sentence each.")]}]),
    ("two pictures where the words want them", ["odd.png", "rgba.png"],
     [{"role": "user", "content": "Is <|image|> darker than <|image|>?"}]),
    ("a picture between words", ["rgba.png"],
     [{"role": "user", "content": [text("Here is "), IMAGE, text(", and here are words.")]}]),
    ("several turns", ["tall.png", "odd.png"],
     [{"role": "system", "content": "Be brief."},
      {"role": "user", "content": [IMAGE, text("One?")]},
      {"role": "assistant", "content": "One."},
      {"role": "user", "content": [text("And two? "), IMAGE]}]),
    ("words alone", [], [{"role": "user", "content": "What is the capital of France?"}]),
    ("words that name a token of pictures", [], [{"role": "user", "content": "What does <im_col> mean, and <im_start>?"}]),
    ("as it is", ["wide.png"], "<|image|>What is this?"),
    ("as it is, in the middle", ["line.png"], "A line: <|image|> Is it straight?"),
    ("as it is, words alone", [], "The capital of France is"),
]


def main(directory):
    directory = pathlib.Path(directory)
    config = json.loads((directory / "config.json").read_text())
    # transformers ignores vit_config where vision_config is there, even empty.
    config.pop("vision_config")
    with tempfile.TemporaryDirectory() as loaded:
        loaded = pathlib.Path(loaded)
        (loaded / "config.json").write_text(json.dumps(config))
        (loaded / "model.safetensors").symlink_to(directory / "model.safetensors")
        model = Molmo2ForConditionalGeneration.from_pretrained(loaded, attn_implementation="eager", dtype=torch.float32)
    model.eval()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(directory)
    pictures = Molmo2ImageProcessor(**{k: v for k, v in json.loads((directory / "preprocessor_config.json").read_text()).items()
                                       if k != "image_processor_type"})
    flags = json.loads((directory / "processor_config.json").read_text())
    flags.pop("processor_class")
    template = json.loads((directory / "tokenizer_config.json").read_text())["chat_template"]
    processor = Molmo2Processor(pictures, Molmo2VideoProcessor(), tokenizer, chat_template=template, **flags)

    made = []
    for what, files, said in REQUESTS:
        images = [ImageOps.exif_transpose(Image.open(PICTURES / file)) for file in files]
        prompt, special = said, True
        if not isinstance(said, str):
            prompt = processor.apply_chat_template(said, add_generation_prompt=True, tokenize=False)
            special = False
        inputs = processor(images=images or None, text=prompt, return_tensors="pt", add_special_tokens=special)
        ids = inputs["input_ids"]
        with torch.no_grad():
            answer = model.generate(**inputs, do_sample=False, max_new_tokens=TOKENS, min_new_tokens=TOKENS,
                                    output_scores=True, return_dict_in_generate=True)
        margin = min(float(top.values[0, 0] - top.values[0, 1]) for top in (s.topk(2) for s in answer.scores))
        made.append({
            "what": what, "files": files, "said": said,
            "input_ids": ids[0].tolist(), "mm_token_type_ids": inputs["mm_token_type_ids"][0].tolist(),
            "answer": answer.sequences[0, ids.shape[1]:].tolist(), "least_margin": round(margin, 4),
        })
        print(what, ids.shape[1], made[-1]["answer"], made[-1]["least_margin"])
    lines = ",\n".join("  " + json.dumps(case) for case in made)
    (HERE / "expected.json").write_text(f'{{"max_tokens": {TOKENS}, "cases": [\n{lines}\n]}}\n')


main(sys.argv[1])
