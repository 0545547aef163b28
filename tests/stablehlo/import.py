"""Evaluates StableHLO modules with StableHLO's own interpreter; tests/stablehlo/README.md says how it is called."""

import json
import re
import sys
import time
from pathlib import Path

import numpy as np
import safetensors
from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import chlo, stablehlo
from jaxlib.mlir.passmanager import PassManager

# Of safetensors: MLIR's name, numpy's name.
DTYPES = {
    "F64": ("f64", np.float64),
    "F32": ("f32", np.float32),
    "F16": ("f16", np.float16),
    "BF16": ("bf16", None),
    "I32": ("i32", np.int32),
    "U32": ("ui32", np.uint32),
    "U8": ("ui8", np.uint8),
    "BOOL": ("i1", np.bool_),
}


def context():
    found = ir.Context()
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    found.append_dialect_registry(registry)
    stablehlo.register_dialect(found)
    chlo.register_dialect(found)
    found.load_all_available_dialects()
    return found


def type_of(dtype, shape):
    return "tensor<" + "".join(f"{size}x" for size in shape) + DTYPES[dtype][0] + ">"


def enter(told):
    dtype, shape, data = told["dtype"], told["shape"], bytes(told["data"])
    kind = type_of(dtype, shape)
    if not data:
        return ir.Attribute.parse(f"dense<> : {kind}")
    if dtype == "BOOL":
        truths = np.frombuffer(data, np.bool_).reshape(shape)
        return ir.DenseElementsAttr.get(truths, type=ir.IntegerType.get_signless(1), shape=shape)
    return ir.Attribute.parse(f'dense<"0x{data.hex().upper()}"> : {kind}')


def leave(result):
    kind = ir.RankedTensorType(result.type)
    dtype = next(name for name, (mlir, _) in DTYPES.items() if mlir == str(kind.element_type))
    shape = list(kind.shape)
    if dtype == "BF16":
        # numpy has no bf16: its bits.
        bits = type_of(dtype, shape).replace("bf16", "ui16")
        text = f"""func.func @main(%x: {kind}) -> {bits} {{
          %y = stablehlo.bitcast_convert %x : ({kind}) -> {bits}
          return %y : {bits}
        }}"""
        (result,) = stablehlo.eval_module(ir.Module.parse(text), [result])
    numpy = DTYPES[dtype][1] or np.uint16
    values = np.array(result)
    assert values.dtype == numpy, (values.dtype, dtype)
    values = np.ascontiguousarray(np.broadcast_to(values, shape))
    return {"dtype": dtype, "shape": shape, "data": values.tobytes()}


# Guards of numerics `pinned` (`runtime/src/hlo/pinned.rs`) in dialects that StableHLO's interpreter has not.
PRODUCT = re.compile(r'"math\.fma"\((%\w+), (%\w+), %\w+\)[^:]* : \((.+?), .+?, .+?\) -> ')
CONVERT = re.compile(r'"arith\.(?:extf|truncf)"\((%\w+)\)[^:]* : ')


def plain(text):
    text = PRODUCT.sub(r'"stablehlo.multiply"(\1, \2) : (\3, \3) -> ', text)
    return CONVERT.sub(r'"stablehlo.convert"(\1) : ', text)


def evaluate(path):
    module = ir.Module.parse(plain(path.read_text()))
    module.operation.verify()
    # The interpreter knows StableHLO alone; `chlo.erf` becomes StableHLO's own polynomial.
    PassManager.parse("builtin.module(func.func(chlo-legalize-to-stablehlo))").run(module.operation)
    told = dict(safetensors.deserialize(path.with_suffix(".safetensors").read_bytes()))
    inputs = [enter(told[str(at)]) for at in range(len(told))]
    return [leave(result) for result in stablehlo.eval_module(module, inputs)]


def write(path, tensors):
    """The format of safetensors; the package's writer takes no bf16 as bits."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        begin = len(data)
        data += tensor["data"]
        header[name] = {"dtype": tensor["dtype"], "shape": tensor["shape"], "data_offsets": [begin, len(data)]}
    header = json.dumps(header, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)


def main(folder):
    stablehlo.register_stablehlo_passes()
    begun, results, refused = time.time(), {}, []
    paths = sorted(Path(folder).glob("*.mlir"))
    with context(), ir.Location.unknown():
        for path in paths:
            at = time.time()
            try:
                for place, result in enumerate(evaluate(path)):
                    results[f"{path.stem}.{place}"] = result
            except Exception as error:
                refused.append(f"{path}: {error}")
            if time.time() - at > 5:
                print(f"{path.stem}: {time.time() - at:.0f} s", flush=True)
    for said in refused:
        print(said)
    if refused:
        sys.exit(f"{len(refused)} of {len(paths)} modules refused")
    out = Path(__file__).parent / "cases.safetensors"
    write(out, results)
    print(f"{len(paths)} modules, {len(results)} results, {out.stat().st_size} bytes, {time.time() - begun:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1])
