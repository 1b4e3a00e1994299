"""What the text of a lowered kernel shows without a run: rows taken apart, masks that became selects, read-backs."""

import re

from .lowering import argument_names

_COUNTED = {
    # GM to UB and UB to GM by the copy engine, a tile or a row at a time.
    "copies": r"memref\.copy ",
    "stores": r"bufferization\.materialize_in_destination ",
    # Copies of a loop that may overlap in time.
    "parallel_loops": r"\{[^{}]*hivm\.parallel_loop[^{}]*\}",
    # By the scalar unit, an element at a time.
    "scalar_loads": r"memref\.load ",
    "scalar_stores": r"memref\.store ",
    # Over a tile: a mask that was not kept rectangular becomes load + select + store.
    "tile_selects": r"arith\.select [^\n]*: tensor<\d+x\d+x\w+>, ",
    "atomics": r"(generic_)?atomic_(rmw|cas|xchg)",
    # Vector arithmetic that the device has no instruction for: done element by element.
    "int64_vector_operations": r"arith\.(?!constant)\w+ [^\n]*: tensor<(\d+x)+i64>",
    "integer_vector_divisions": r"arith\.(divsi|remsi|divui|remui) [^\n]*: tensor<",
}


def ir_properties(mlir):
    """Counts over the text of lower().

    copies, stores, parallel_loops, scalar_loads, scalar_stores, tile_selects, atomics, int64_vector_operations,
    integer_vector_divisions; element_accesses: {argument: accesses of one element each}; read_outputs: arguments that
    are loaded as well as stored.
    """
    found = {name: len(re.findall(pattern, mlir)) for name, pattern in _COUNTED.items()}
    names = argument_names(mlir)
    arguments = re.findall(r"(%arg\d+): memref<\?x\w+> \{tt\.tensor_kind = (\d)", mlir)
    every = re.findall(r"(%arg\d+): ", mlir[: mlir.index("attributes")])
    name_of = {argument: names[i - 2] if 2 <= i < 2 + len(names) else argument for i, argument in enumerate(every)}
    singles = re.findall(r"reinterpret_cast (%arg\d+) to [^\n]*? to memref<1x(?:1x)?(?:i|f|bf)\d+[,>]", mlir)
    found["element_accesses"] = {name_of[a]: singles.count(a) for a in every if a in singles}
    found["read_outputs"] = [name_of[argument] for argument, kind in arguments if kind == "2"]
    return found
