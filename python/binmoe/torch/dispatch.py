"""Operators of torch.library, and the way past the dispatcher.

The dispatcher costs 5 us for an operator written in Python, 40 with a gradient: more than a layer of a few tokens. So
where nothing looks on, the kernel is called as it is, or as a torch.autograd.Function with the operator's own gradient.
"""

import torch

from binmoe.torch import fast

NAMESPACE = "binmoe"
library = torch.library.Library(NAMESPACE, "DEF")


def operator(schema, kernel, fake, setup_context=None, gradient=None):
    """Define one operator, the same kernel for CPU and CUDA tensors. Returns what calls it, by position;
    its attribute `overload` is torch's own.

    The kernel checks its arguments itself. setup_context and gradient: as torch.library.register_autograd has them;
    without them no argument may need a gradient.
    """
    name = schema.partition("(")[0]
    library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    for key in ("CPU", "CUDA"):
        library.impl(name, kernel, key)
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=library)
    overload = getattr(torch.ops.binmoe, name).default
    function = None
    if gradient is not None:
        torch.library.register_autograd(f"{NAMESPACE}::{name}", gradient, setup_context=setup_context, lib=library)
        function = _function(name, kernel, setup_context, gradient)

    def call(*arguments):
        if not fast.skips_dispatch(*arguments):
            return overload(*arguments)
        if function is not None and fast.needs_gradient(*arguments):
            return function.apply(*arguments)
        return kernel(*arguments)

    call.overload = overload
    return call


def _function(name, kernel, setup_context, gradient):
    """The operator for autograd alone. Its forward does the set-up: as a method of its own that costs 10 us."""

    def forward(ctx, *arguments):
        output = kernel(*arguments)
        setup_context(ctx, arguments, output)
        return output

    methods = {"forward": staticmethod(forward), "backward": staticmethod(gradient)}
    return type(f"binmoe_{name}", (torch.autograd.Function,), methods)
