"""Experts: one MLP for each bin of [E, C, H], all at once."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

ACTIVATIONS = {"relu": functional.relu, "gelu": functional.gelu, "silu": functional.silu}


class ExpertMLP(torch.nn.Module):
    """num_experts independent MLPs by torch.bmm.

      plain  activation(y @ w_in) @ w_out
      gated  (activation(y @ w_gate) * (y @ w_up)) @ w_out,  w_in = [w_gate, w_up]    SwiGLU with activation="silu"
    w_in [E, hidden_size, ffn_size] (gated: 2 * ffn_size), w_out [E, ffn_size, hidden_size]; with bias=True also
    b_in and b_out. activation: relu, gelu, silu or a function of a tensor. Initialised as torch.nn.Linear.
    The empty rows of a bin are computed too; scatter does not read them.
    """

    def __init__(
        self,
        num_experts: int,
        hidden_size: int,
        ffn_size: int,
        *,
        activation: str | Callable[[Tensor], Tensor] = "gelu",
        gated: bool = False,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if not callable(activation) and activation not in ACTIVATIONS:
            names = ", ".join(ACTIVATIONS)
            raise ValueError(f"[ExpertMLP] activation is {activation!r}, but one of {names} or a function is wanted")
        self.activation = activation
        self.gated = gated
        in_size = 2 * ffn_size if gated else ffn_size

        def parameter(*shape):
            return torch.nn.Parameter(torch.empty(*shape, device=device, dtype=dtype))

        self.w_in = parameter(num_experts, hidden_size, in_size)
        self.w_out = parameter(num_experts, ffn_size, hidden_size)
        self.b_in = parameter(num_experts, 1, in_size) if bias else None
        self.b_out = parameter(num_experts, 1, hidden_size) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for weight, bias in ((self.w_in, self.b_in), (self.w_out, self.b_out)):
            bound = weight.shape[1] ** -0.5
            torch.nn.init.uniform_(weight, -bound, bound)
            if bias is not None:
                torch.nn.init.uniform_(bias, -bound, bound)

    def forward(self, y: Tensor) -> Tensor:
        """y [E, C, hidden_size] -> [E, C, hidden_size]."""
        activation = ACTIVATIONS.get(self.activation, self.activation)
        hidden = self._linear(y, self.w_in, self.b_in)
        if self.gated:
            gate, up = hidden.chunk(2, dim=-1)
            hidden = activation(gate) * up
        else:
            hidden = activation(hidden)
        return self._linear(hidden, self.w_out, self.b_out)

    @staticmethod
    def _linear(x, weight, bias):
        return torch.bmm(x, weight) if bias is None else torch.baddbmm(bias, x, weight)

    def extra_repr(self) -> str:
        num_experts, ffn_size, hidden_size = self.w_out.shape
        name = self.activation if isinstance(self.activation, str) else getattr(self.activation, "__name__", "function")
        return (
            f"num_experts={num_experts}, hidden_size={hidden_size}, ffn_size={ffn_size}, activation={name}, "
            f"gated={self.gated}, bias={self.b_in is not None}"
        )
