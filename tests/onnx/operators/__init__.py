"""What every ONNX operator is in mgraph, by group, with the bound of each and its reason.

A function takes the body of the op so far and a node, and gives the text of each output. `ulp` is the bound per element, in units
of the last place of the result's dtype; `of_largest` is in the same unit at the largest number of the result. 0 is exact.
"""

from operators import attention, codes, elementwise, indices, losses, norms, outside, products, reductions, shapes  # noqa: F401
from operators.table import TABLE  # noqa: F401
