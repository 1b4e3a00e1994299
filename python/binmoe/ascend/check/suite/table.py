"""Our kernels as the checker sees them: what each argument is, and how a launch would compile it."""

from dataclasses import dataclass

from binmoe.ascend.library import ROW_COPIES

ROW_ARGUMENTS = ("x", "y", "grad", "out", "dy")
TRITON_TYPES = {"f32": "fp32", "bf16": "bf16", "f16": "fp16"}


@dataclass(frozen=True)
class Entry:
    """One kernel. op and order as the tile planner names them; outputs are written and never read."""

    name: str
    function: str
    op: str
    order: str
    outputs: tuple


KERNELS = {
    entry.name: entry
    for entry in (
        Entry("gather by expert", "binned_gather_kernel", "gather", "expert", ("y",)),
        Entry("gather by token", "binned_gather_by_token_kernel", "gather", "token", ("y",)),
        Entry("scatter", "binned_scatter_kernel", "scatter", "", ("out",)),
        Entry("wgrad", "binned_scatter_wgrad_kernel", "wgrad", "", ("dw",)),
        Entry("scatter backward", "binned_scatter_backward_kernel", "scatter_backward", "", ("dy", "dw")),
    )
}


def forms_of(kernel):
    """The row copies that a kernel has; one stands for none."""
    return ROW_COPIES if kernel == "gather by expert" else ("element_insert",)


@dataclass(frozen=True)
class Variant:
    """The compile-time side of a launch: dtypes by design.md's names, the tile, the tail.

    weights None: without weights. row_copy counts in the gather by expert alone.
    """

    kernel: str
    rows: str = "bf16"
    weights: str = None
    dw: str = "f32"
    top_k: int = 2
    block_tokens: int = 4
    sub_block_size: int = 4
    block_x: int = 64
    row_copy: str = "element_insert"
    has_tail: bool = True

    def __str__(self):
        weights = f", weights {self.weights}" if self.weights else ""
        tile = f"K={self.top_k}, {self.block_tokens} tokens, {self.sub_block_size} x {self.block_x}"
        return f"{self.label}, {self.rows}{weights}, {tile}{', tail' if self.has_tail else ''}"

    @property
    def entry(self):
        return KERNELS[self.kernel]

    @property
    def label(self):
        """Of a report: the kernel, and the form of its row copy where there are several."""
        return f"{self.kernel}, {self.row_copy}" if self.kernel == "gather by expert" else self.kernel

    def signature(self, function):
        types = {name: "*" + TRITON_TYPES[self.rows] for name in ROW_ARGUMENTS}
        types |= {name: "*i32" for name in ("indices", "bin_ids", "bins", "row_of_assignment")}
        types |= {"weights": "*" + TRITON_TYPES[self.weights or "f32"], "dw": "*" + TRITON_TYPES[self.dw]}
        constexprs = self.constexprs(function)
        return {name: types.get(name, "i32") for name in function.arg_names if name not in constexprs}

    def constexprs(self, function):
        values = {
            "TOP_K": self.top_k,
            "BLOCK_TOKENS": self.block_tokens,
            "SUB_BLOCK_SIZE": self.sub_block_size,
            "BLOCK_X": self.block_x,
            "ROW_COPY": ROW_COPIES.index(self.row_copy),
            "HAS_WEIGHTS": int(self.weights is not None),
            "HAS_TAIL": int(self.has_tail),
        }
        return {name: value for name, value in values.items() if name in function.arg_names}
