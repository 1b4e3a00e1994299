"""The level "IR": what the lowered text must and must not hold, number by number, each with its reason."""

import itertools

from binmoe.ascend import kernels

from ..properties import ir_properties
from .checks import Check
from .running import lowered
from .table import KERNELS, Variant

LEVEL = "IR"

# In no kernel, whatever its form:
NEVER = {
    "scalar_stores": 0,  # a scalar store goes through a 64-byte line of the cache: two programs would race for it
    "atomics": 0,  # one writer for each element, the same bits every run
    "int64_vector_operations": 0,  # done element by element; 64-bit offsets are scalars, one a row
    "integer_vector_divisions": 0,  # likewise; the token of an assignment is divided out of a scalar
    "read_outputs": [],  # a mask that is not rectangular becomes load + select + store, which races
}


def pins(variant):
    """The numbers of a variant; NEVER's beside them."""
    op, weighted, tail = variant.entry.op, variant.weights is not None, variant.has_tail
    pinned = dict(NEVER)
    # Only the 2-D forms leave a loop of copies that may overlap in time; the others are one copy a row, in order.
    by_expert = variant.kernel == "gather by expert"
    pinned["parallel_loops"] = int(by_expert and variant.row_copy != "element_insert")
    # A row is one copy: of x, y or grad; and once more in the tail's path. The map, and the weights, are one a block.
    row_copies = {"gather": 1, "scatter": 1, "wgrad": 2, "scatter_backward": 2}[op] * (1 + tail)
    map_copies = 1 + (weighted and not by_expert)
    if by_expert and variant.row_copy == "index_select" and (tail or weighted):
        map_copies += 1  # the compiler loads the indices twice: as a vector and for the scalar unit
    if op == "scatter" and weighted:
        map_copies += 1  # and the map for the select of weights
    if op in ("wgrad", "scatter_backward"):
        map_copies += 1  # and the map as [tokens, choices] where dw is stored
    pinned["copies"] = row_copies + map_copies
    # Rows leave by one store a path; the empty rows of a gather, likewise; dw once for a block.
    paths = {"gather": 2, "scatter": 1, "wgrad": 0, "scatter_backward": 2}[op] * (1 + tail)
    pinned["stores"] = paths + (op in ("wgrad", "scatter_backward"))
    # Only bins and the sub-block's first and last expert are read by the scalar unit, and in the gather by expert the
    # weights: its assignments stand anywhere. No row is: a count for x, y, grad, out or dy would be a row taken apart.
    elements = {"bin_ids": 2, "bins": 5} if by_expert else {"bins": 2} if op in ("gather", "scatter_backward") else {}
    if by_expert and weighted:
        elements["weights"] = 1
    pinned["element_accesses"] = elements
    pinned["scalar_loads"] = sum(elements.values())
    # No select over a tile of rows: it would cost the tile again, in UB and in time. The one that there is goes over
    # dw's tile of a block, a number for each assignment.
    pinned["tile_selects"] = int(op in ("wgrad", "scatter_backward"))
    return pinned


def variants(kernel, row_copy):
    for weights, tail, top_k in itertools.product((None, "f32"), (False, True), (1, 2, 8)):
        if weights and KERNELS[kernel].op == "wgrad":
            continue
        rows = top_k if KERNELS[kernel].op != "gather" else 8
        yield Variant(kernel, "bf16", weights, "f32", top_k, 4, rows, 64, row_copy, tail)


def complaint(variant, module=kernels):
    """What differs from the pinned numbers; "" when nothing does."""
    found = ir_properties(lowered(variant, module))
    wrong = {name: (found[name], want) for name, want in pins(variant).items() if found[name] != want}
    return "; ".join(f"{name} is {got}, not {want}" for name, (got, want) in wrong.items())


def check(kernel, row_copy, weighted):
    """One check for a form, with or without weights."""
    chosen = [v for v in variants(kernel, row_copy) if (v.weights is not None) == weighted]
    complaints = [f"{variant}: {text}" for variant in chosen for text in [complaint(variant)] if text]
    case = "pinned numbers, with weights" if weighted else "pinned numbers"
    return Check(chosen[0].label, case, LEVEL, not complaints, "; ".join(complaints) or f"{len(chosen)} texts")


def checks(kernel, row_copy):
    both = (False, True) if KERNELS[kernel].op != "wgrad" else (False,)
    return [check(kernel, row_copy, weighted) for weighted in both]
