"""What each result must be. binmoe's plan, gather, scatter and dy are exact; the others may round as they like, within
bounds that follow from the dtype."""

import torch


def _terms(problem, buffers):
    """The K terms of scatter, float32 [T, H] each; a dropped one is 0."""
    for k in range(problem.ids.shape[1]):
        yield problem.weights[:, k, None] * buffers.y0[problem.row_of_choice[:, k]].float()


class Expected:
    """The right answers for one set of buffers; made once for all ways."""

    def __init__(self, operation, problem, buffers):
        self.operation = operation
        self.exact = {}
        self.bounded = {}
        getattr(self, "_" + operation)(problem, buffers)

    def _plan(self, problem, buffers):
        experts, indices = torch.sort(problem.ids.flatten().long(), stable=True)
        places = torch.arange(len(experts), device=experts.device)
        offsets = places - torch.searchsorted(experts, experts)
        rows = torch.where(offsets < problem.capacity, experts * problem.capacity + offsets, -1)
        every = torch.arange(problem.shape.model.num_experts, device=experts.device)
        self.exact["indices"] = indices
        self.exact["bins"] = torch.searchsorted(experts, every, right=True)
        self.exact["rows"] = torch.empty_like(rows).scatter(0, indices, rows)
        self.no_row = len(every) * problem.capacity

    def _gather(self, problem, buffers):
        self.exact["y"] = buffers.x0[problem.source_of_row]

    def _scatter(self, problem, buffers):
        total = torch.zeros_like(buffers.grad, dtype=torch.float32)
        size = torch.zeros_like(total)
        for term in _terms(problem, buffers):
            total += term
            size += term.abs()
        # Weights, products and sum may each be rounded to the rows' dtype.
        unit = torch.finfo(problem.dtype).eps
        self.bounded["out"] = (total.to(problem.dtype), (2 + problem.ids.shape[1]) * unit * size)

    def _wgrad(self, problem, buffers):
        self.bounded["dw"] = self._dots(problem, buffers)

    def _dots(self, problem, buffers):
        grad = buffers.grad.double()
        dots, sizes = [], []
        for k in range(problem.ids.shape[1]):
            products = buffers.y0[problem.row_of_choice[:, k]].double() * grad
            dots.append(products.sum(dim=1))
            sizes.append(products.abs().sum(dim=1))
        size = torch.stack(sizes, dim=1)
        hidden_size = grad.shape[1]
        # A float32 sum in any order, and torch.bmm's rounding to the rows' dtype.
        return torch.stack(dots, dim=1), (hidden_size * 2.0**-24 + torch.finfo(problem.dtype).eps) * size

    def _backward(self, problem, buffers):
        wide = buffers.grad0[problem.source_of_row].float() * problem.weight_of_row.unsqueeze(-1)
        self.exact["dy"] = wide.to(problem.dtype)
        self.bounded["dw"] = self._dots(problem, buffers)

    def check(self, way, result, ours):
        """Raises ValueError when the result is wrong."""
        for name, value in self._parts(result).items():
            if name in self.exact:
                wanted = self.exact[name]
                wrong = value.reshape(wanted.shape) != wanted
            else:
                wanted, bound = self.bounded[name]
                difference = (value.double() - wanted.double()).abs()
                # binmoe's sum is the float32 one, rounded once: no difference at all.
                wrong = difference > bound if not (ours and name == "out") else value != wanted
                wrong |= value.isnan()
            if wrong.any():
                where = torch.nonzero(wrong)[0].tolist()
                count = int(wrong.sum())
                raise ValueError(
                    f"{self.operation} by {way}: {count} of {wrong.numel()} wrong in {name}, first {where}"
                )

    def _parts(self, result):
        if self.operation == "plan":
            if isinstance(result, tuple):
                indices, bins, rows = result
                return {"indices": indices, "bins": bins, "rows": torch.where(rows == self.no_row, -1, rows)}
            return {"indices": result.indices, "bins": result.bins, "rows": result.row_of_assignment}
        if self.operation == "backward":
            return {"dy": result[0], "dw": result[1]}
        return {{"gather": "y", "scatter": "out", "wgrad": "dw"}[self.operation]: result}
