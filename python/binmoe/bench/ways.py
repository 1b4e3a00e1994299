"""The ways to do each operation: binmoe's, torch's eager ones, and torch.compile of the plain expression.

A way is a function of (problem, buffers, into). into = True: it writes the outputs of the buffers, whose pages are
touched; False: it returns fresh tensors. torch's ways get their maps for nothing, a row of zeros behind x, y and grad,
weights in the dtype of the rows and int64 indices, as they like them best; they may return [E*C, H] for [E, C, H].
"""

import torch
from torch.nn import functional

import binmoe.torch as binmoe_torch

OURS = "binmoe"
OPERATIONS = ("plan", "gather", "scatter", "wgrad", "backward")


# binmoe


def _plan(problem, buffers, into):
    model = problem.shape.model
    out = problem.plan if into else None
    return binmoe_torch.plan(problem.ids, model.num_experts, problem.capacity, out=out)


def _gather(problem, buffers, into):
    return binmoe_torch.gather(buffers.x, problem.plan, out=buffers.y_out if into else None)


def _scatter(problem, buffers, into):
    return binmoe_torch.scatter(buffers.y, problem.plan, problem.weights, out=buffers.out if into else None)


def _wgrad(problem, buffers, into):
    return binmoe_torch.wgrad(buffers.y, buffers.grad, problem.plan, out=buffers.dw_out if into else None)


def _backward(problem, buffers, into):
    out = (buffers.y_out, buffers.dw_out) if into else None
    return binmoe_torch.scatter_backward(buffers.y, buffers.grad, problem.plan, problem.weights, out=out)


# torch, eager


def _sort_plan(problem, buffers, into):
    return sort_plan(problem.ids, problem.shape.model.num_experts, problem.capacity)


def sort_plan(ids, num_experts, capacity):
    """(indices, bins, rows [T, K] with E*C where dropped) of unmasked ids, in torch operations without a data wait."""
    flat = ids.flatten().long()
    experts, indices = torch.sort(flat, stable=True)
    counts = torch.zeros(num_experts, dtype=torch.int64, device=ids.device)
    counts = counts.scatter_add(0, flat, torch.ones_like(flat))
    bins = counts.cumsum(0)
    offset = torch.arange(flat.numel(), device=ids.device) - (bins - counts)[experts]
    rows = torch.where(offset < capacity, experts * capacity + offset, num_experts * capacity)
    return indices, bins, torch.empty_like(rows).scatter(0, indices, rows).view(ids.shape)


def _index_select(problem, buffers, into):
    if into:
        return torch.index_select(buffers.x0, 0, problem.source_of_row, out=buffers.y_out_rows)
    return torch.index_select(buffers.x0, 0, problem.source_of_row)


def _index_copy(problem, buffers, into):
    """zeros and index_copy_, as many write it; dropped rows go to a place of their own, which costs the copy a row."""
    x = buffers.x
    top_k = problem.ids.shape[1]
    y = x.new_zeros(problem.used.numel() + 1, x.shape[1])
    expanded = x.unsqueeze(1).expand(-1, top_k, -1).reshape(-1, x.shape[1])
    y.index_copy_(0, problem.row_of_choice.flatten(), expanded)
    return y[:-1]


def _embedding_bag(problem, buffers, into):
    return functional.embedding_bag(
        problem.row_of_choice, buffers.y0, mode="sum", per_sample_weights=problem.row_weights
    )


def _index_and_sum(problem, buffers, into):
    return (buffers.y0[problem.row_of_choice].float() * problem.weights.unsqueeze(-1)).sum(1).to(buffers.y0.dtype)


def _bmm(problem, buffers, into):
    picked = buffers.y0[problem.row_of_choice]
    return torch.bmm(picked, buffers.grad.unsqueeze(-1)).squeeze(-1).float()


def _index_and_bmm(problem, buffers, into):
    dy = buffers.grad0.index_select(0, problem.source_of_row) * problem.weight_of_row.unsqueeze(-1)
    return dy.to(buffers.grad.dtype), _bmm(problem, buffers, into)


# torch.compile


def _expression_gather(x, used, source):
    return torch.where(used.unsqueeze(-1), x[source.clamp(max=x.shape[0] - 1)], 0)


def _expression_scatter(y, weights, rows):
    """The sum over the choices written out, which torch.compile makes one loop of."""
    total = torch.zeros((), device=y.device)
    last = y.shape[0] - 1
    for k in range(rows.shape[1]):
        kept = (rows[:, k] <= last).unsqueeze(-1)
        term = weights[:, k].unsqueeze(-1) * y[rows[:, k].clamp(max=last)].float()
        total = total + torch.where(kept, term, 0.0)
    return total.to(y.dtype)


def _expression_wgrad(y, grad, rows):
    last = y.shape[0] - 1
    wide = grad.float()
    dots = [(y[rows[:, k].clamp(max=last)].float() * wide).sum(-1) for k in range(rows.shape[1])]
    return torch.where(rows <= last, torch.stack(dots, dim=1), 0.0)


def _expression_dy(grad, used, source, weight_of_row):
    rows = grad[source.clamp(max=grad.shape[0] - 1)].float() * weight_of_row.unsqueeze(-1)
    return torch.where(used.unsqueeze(-1), rows, 0.0).to(grad.dtype)


def _expression_backward(y, grad, rows, used, source, weight_of_row):
    return _expression_dy(grad, used, source, weight_of_row), _expression_wgrad(y, grad, rows)


class Compiled:
    """torch.compile of an expression for one shape; with `outputs` also of a form that writes into those.

    arguments, outputs  functions of (problem, buffers) that give tuples
    """

    def __init__(self, expression, arguments, outputs=None):
        def write(outputs, *arguments):
            results = expression(*arguments)
            for output, result in zip(outputs, results if len(outputs) > 1 else (results,), strict=True):
                output.copy_(result)

        self._fresh = torch.compile(expression, fullgraph=True, dynamic=False)
        self._write = torch.compile(write, fullgraph=True, dynamic=False)
        self._arguments = arguments
        self._outputs = outputs

    def __call__(self, problem, buffers, into):
        arguments = self._arguments(problem, buffers)
        if not into:
            return self._fresh(*arguments)
        outputs = self._outputs(problem, buffers)
        self._write(outputs, *arguments)
        return outputs if len(outputs) > 1 else outputs[0]


def _compiled(operation):
    if operation == "plan":
        return Compiled(sort_plan, lambda p, b: (p.ids, p.shape.model.num_experts, p.capacity))
    if operation == "gather":
        return Compiled(_expression_gather, lambda p, b: (b.x, p.used, p.source_of_row), lambda p, b: (b.y_out_rows,))
    if operation == "scatter":
        return Compiled(_expression_scatter, lambda p, b: (b.y_rows, p.weights, p.row_of_choice), lambda p, b: (b.out,))
    if operation == "wgrad":
        return Compiled(_expression_wgrad, lambda p, b: (b.y_rows, b.grad, p.row_of_choice), lambda p, b: (b.dw_out,))
    return Compiled(
        _expression_backward,
        lambda p, b: (b.y_rows, b.grad, p.row_of_choice, p.used, p.source_of_row, p.weight_of_row),
        lambda p, b: (b.y_out_rows, b.dw_out),
    )


# operation: {way: (function, whether it can write into outputs)}
_EAGER = {
    "plan": {OURS: (_plan, True), "sort, counts, scatter": (_sort_plan, False)},
    "gather": {OURS: (_gather, True), "index_select": (_index_select, True), "zeros, index_copy": (_index_copy, False)},
    "scatter": {
        OURS: (_scatter, True),
        "embedding_bag": (_embedding_bag, False),
        "index, sum": (_index_and_sum, False),
    },
    "wgrad": {OURS: (_wgrad, True), "index, bmm": (_bmm, False)},
    "backward": {OURS: (_backward, True), "index_select, bmm": (_index_and_bmm, False)},
}


def ways_of(operation, compiled=True):
    """{name: (function, takes_out)}; a way that cannot write into given outputs allocates them, in every column."""
    ways = dict(_EAGER[operation])
    if compiled:
        torch.compiler.reset()  # each shape and mode is compiled for itself, however many there were before
        ways["torch.compile"] = (_compiled(operation), operation != "plan")
    return ways
