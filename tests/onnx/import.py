"""ONNX's node cases as mgraph: writes `cases/`, `cases.json` and `cases.safetensors` beside this file. See README.md."""

import collections
import hashlib
import itertools
import json
import pathlib
import re
import shutil
import warnings

import numpy as np
import onnx
from onnx.backend.test.case.node import collect_testcases

import operators
from graph import REASONS, Skip, translate, type_text

HERE = pathlib.Path(__file__).parent
NAMES = {"f64": "F64", "f32": "F32", "f16": "F16", "bf16": "BF16", "i32": "I32", "u32": "U32", "u8": "U8", "bool": "BOOL"}

HEADER = """//! {operator} of ONNX {version}, written by `import.py`: an op per distinct text.
family onnx for "onnx"

model {{
    table: Embedding(2, 2)
    graph embed(tokens: i32[B, S]) -> F[B, S, 2] {{ table(tokens) }}
    graph forward(x: F[B, S, 2], positions: i32[B, S], wanted: i32[B, R]) -> F[B, R, 2] {{ rows_at(x, wanted) }}
}}
"""


def stored(array):
    """As the language has it: i64 is carried as i32."""
    return array.astype(np.int32) if array.dtype == np.int64 else array


def write_safetensors(path, tensors):
    header, blob = {}, b""
    for name, array in tensors.items():
        dtype = NAMES[type_text(array).split("[")[0]]
        data = np.ascontiguousarray(stored(array)).tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(blob), len(blob) + len(data)]}
        blob += data
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + blob)


def operator_of(case, known):
    """The operator that a case is about: of a function body, that of the case it is the body of."""
    base = re.sub(r"_expanded.*$", "", case.name)
    if base in known:
        return known[base]
    return case.model.graph.node[0].op_type


def main():
    warnings.filterwarnings("ignore")
    cases = sorted(collect_testcases(), key=lambda c: c.name)
    known = {c.name: c.model.graph.node[0].op_type for c in cases if len(c.model.graph.node) == 1}
    tensors, ops, run, skipped = {}, collections.defaultdict(dict), [], []
    bounds = {}

    def keep(array):
        key = hashlib.blake2b(type_text(array).encode() + stored(array).tobytes(), digest_size=6).hexdigest()
        tensors.setdefault(key, array)
        return key

    for case in cases:
        name = case.name.removeprefix("test_")
        operator = operator_of(case, known)
        try:
            body, results, expected = translate(case, operators.TABLE)
            for array in expected:
                type_text(array)
        except Skip as skip:
            skipped.append({"case": name, "operator": operator, "reason": skip.reason, "what": skip.what})
            continue
        types = ", ".join(type_text(e) for e in expected)
        types = types if len(expected) == 1 else f"({types})"
        parameters = ", ".join(f"{n}: {type_text(a)}" for n, a in body.operands)
        # The last statement stands for itself where it is the result.
        lines, result = body.lines[:], results[0] if len(results) == 1 else f"({', '.join(results)})"
        if lines and lines[-1].startswith(f"let {result} = "):
            result = lines.pop()[len(f"let {result} = ") : -1]
        text = f"({parameters}) -> {types} {{\n" + "".join(f"    {line}\n" for line in lines + [result]) + "}\n"
        # A file holds at most 128 KiB of text; the formatter may lengthen it.
        file = next(
            f
            for f in itertools.chain([operator], (f"{operator}_{i}" for i in itertools.count(2)))
            if text in ops[f] or sum(map(len, ops[f])) < 80_000
        )
        name_of_op = ops[file].setdefault(text, f"onnx_{name}")
        bounds[operator] = operators.TABLE.bounds[operator]
        run.append(
            {
                "case": name,
                "operator": operator,
                "file": file,
                "op": name_of_op,
                "inputs": [keep(a) for _, a in body.operands],
                "expected": [keep(e) for e in expected],
            }
        )
    folder = HERE / "cases"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for file, texts in ops.items():
        text = HEADER.format(operator=file.split("_")[0], version=onnx.__version__)
        (folder / f"{file}.mgraph").write_text(text + "".join(f"\nop {name}{text}" for text, name in texts.items()))
    write_safetensors(HERE / "cases.safetensors", dict(sorted(tensors.items())))
    lines = lambda items: "[\n" + ",\n".join(json.dumps(i) for i in items) + "\n]"
    shown = {k: bounds[k] for k in sorted(bounds)}
    table = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in shown.items())
    reasons = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in REASONS.items())
    (HERE / "cases.json").write_text(
        f'{{"onnx": {json.dumps(onnx.__version__)},\n"bounds": {{\n{table}\n}},\n"reasons": {{\n{reasons}\n}},\n'
        f'"cases": {lines(run)},\n"skipped": {lines(skipped)}}}\n'
    )
    print(len(run), "run", sum(map(len, ops.values())), "texts", len(skipped), "skipped")
    print(collections.Counter(s["reason"] for s in skipped))
    print(collections.Counter(s["what"] for s in skipped if s["reason"] == "primitive"))


if __name__ == "__main__":
    main()
