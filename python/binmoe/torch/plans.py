"""Plans of tensors: who goes where."""

from operator import index

import torch
from torch import Tensor
from torch.autograd.graph import increment_version
from torch.utils import _pytree as pytree

from binmoe.maps import Load, Sizes, load_of, map_length, map_range, symbolic_map_length
from binmoe.torch import fast, native
from binmoe.torch.dispatch import operator


class Plan:
    """The maps of one batch and its sizes; binmoe.torch.plan and Plan.from_bins make plans.

    indices            [T*K] int32  assignments a = t*K + k, ordered by expert, then by the drop policy; past N: -1
    bin_ids            [T*K] int32  their experts; past N: E
    bins               [E] int32  inclusive cumulative counts; bins[E-1] == N, the number of unmasked assignments
    tokens_per_expert  [E] int32  counts before the capacity cut
    kept_per_expert    [E] int32  counts after it: the row counts of a masked grouped GEMM
    row_of_assignment  [T, K] int32  expert row of an assignment, or -1 (dropped or masked)
    status             [3] int64  ids out of range that a GPU took as masked: how many, position and value of the first
    A pytree with the one leaf `maps`: the block of int32 of which all of these are views.
    Memory: 12*(T*K + E) + 24 bytes.
    """

    def __init__(self, maps: Tensor, tokens: int, top_k: int, num_experts: int, expert_capacity: int):
        self.maps = maps
        self._sizes = Sizes(tokens, top_k, num_experts, expert_capacity)
        self.known = None  # the native module's: what it found out about `maps`

    @property
    def sizes(self) -> Sizes:
        return self._sizes

    @property
    def tokens(self) -> int:
        return self._sizes.tokens

    @property
    def top_k(self) -> int:
        return self._sizes.top_k

    @property
    def num_experts(self) -> int:
        return self._sizes.num_experts

    @property
    def expert_capacity(self) -> int:
        return self._sizes.expert_capacity

    @property
    def device(self) -> torch.device:
        return self.maps.device

    def _map(self, name):
        begin, end = map_range(name, self.tokens, self.top_k, self.num_experts)
        return self.maps[begin:end]

    @property
    def indices(self) -> Tensor:
        return self._map("indices")

    @property
    def bin_ids(self) -> Tensor:
        return self._map("bin_ids")

    @property
    def bins(self) -> Tensor:
        return self._map("bins")

    @property
    def tokens_per_expert(self) -> Tensor:
        return self._map("tokens_per_expert")

    @property
    def kept_per_expert(self) -> Tensor:
        return self._map("kept_per_expert")

    @property
    def row_of_assignment(self) -> Tensor:
        return self._map("row_of_assignment").view(self.tokens, self.top_k)

    @property
    def status(self) -> Tensor:
        return self._map("status").view(torch.int64)

    def load(self) -> Load:
        """Load(kept, dropped, masked, empty, max_over_mean). Waits for the device."""
        counts = self.maps[-2 * self.num_experts :].tolist()  # tokens_per_expert, kept_per_expert
        return load_of(counts[: self.num_experts], counts[self.num_experts :], self.sizes)

    def check(self) -> None:
        """Raise ValueError at the first thing that is wrong: with the maps, or an id out of range that a GPU met.

        Cost: O(T*K + E); waits for the device and copies the maps to the host.
        """
        native.check(self.maps, self.sizes)

    @staticmethod
    def from_bins(
        indices: Tensor,
        bins: Tensor,
        top_k: int,
        num_tokens: int,
        expert_capacity: int,
        bin_ids: Tensor | None = None,
        *,
        out: "Plan | None" = None,
    ) -> "Plan":
        """Complete a plan from bins that another system made (MegaBlocks' indices and bins).

        indices  [N] any integer dtype, N <= T*K; inside an expert the first C are kept, in the order they stand
        bins     [E] any integer dtype
        bin_ids  [N] any integer dtype; optional
        out      a Plan of the same sizes and device, to be overwritten
        Errors: on the host the first fault that docs/errors.md knows; a GPU does not look: Plan.check does.
        """
        if fast.unobserved():
            top_k, num_tokens, expert_capacity = index(top_k), index(num_tokens), index(expert_capacity)
        indices, bins = _as_map("indices", indices), _as_map("bins", bins)
        bin_ids = None if bin_ids is None else _as_map("bin_ids", bin_ids)
        require_all_or_none_on_meta("plan_from_bins", bins, indices=indices, bin_ids=bin_ids)
        if out is not None:
            _require_out("plan_from_bins", out, Sizes(num_tokens, top_k, bins.shape[0], expert_capacity), bins)
            plan_from_bins_out_op(indices, bin_ids, bins, num_tokens, top_k, expert_capacity, out.maps)
            return out
        maps = plan_from_bins_op(indices, bin_ids, bins, num_tokens, top_k, expert_capacity)
        return Plan(maps, num_tokens, top_k, bins.shape[0], expert_capacity)

    def __reduce__(self):
        return Plan, (self.maps, *self.sizes)

    def __repr__(self):
        sizes = ", ".join(f"{name}={value}" for name, value in self.sizes._asdict().items())
        return f"binmoe.torch.Plan({sizes}, device={self.maps.device})"


fast.take_plans(Plan)

pytree.register_pytree_node(
    Plan,
    lambda plan: ([plan.maps], tuple(plan.sizes)),
    lambda leaves, sizes: Plan(*leaves, *sizes),
    serialized_type_name="binmoe.torch.Plan",
)


def plan(
    expert_ids: Tensor,
    num_experts: int,
    expert_capacity: int,
    policy: str = "token_order",
    weights: Tensor | None = None,
    *,
    out: Plan | None = None,
) -> Plan:
    """Sort the router's choices into expert bins and cut them at the capacity.

    expert_ids  [T, K] int8, uint8, int16, uint16, int32 or int64; values in [-1, E); -1 = masked
    policy      "token_order", "choice_order" or "by_weight": who keeps a row when an expert overflows
    weights     [T, K] or [T*K] float32, bfloat16, float16 or float64, for by_weight only; no gradient flows into them
    out         a Plan of the same sizes and device, to be overwritten
    Errors: T*K or E*C >= 2^31; K < 1; E < 1; C < 0. An id out of range: on the host an error that says where; on a GPU
    it counts as masked, and Plan.status and Plan.check tell of it.
    Cost: one allocation (on a GPU a workspace as well), no wait. Order: exact, the same on every backend.
    """
    made = fast.plan(expert_ids, num_experts, expert_capacity, policy, weights, out)
    if made is not None:
        return made
    _require_tensor("plan", "expert_ids", expert_ids)
    if expert_ids.dim() != 2:
        raise ValueError(f"[plan] expert_ids has {expert_ids.dim()} dimensions, but must be [tokens, top_k]")
    if weights is not None:
        _require_tensor("plan", "weights", weights)
        weights = weights.detach()
    tokens, top_k = expert_ids.shape
    if fast.unobserved():  # numpy's integers are welcome, floats are not
        num_experts, expert_capacity = index(num_experts), index(expert_capacity)
    require_all_or_none_on_meta("plan", expert_ids, weights=weights)
    if out is None:
        maps = plan_op(expert_ids, num_experts, expert_capacity, policy, weights)
        return Plan(maps, tokens, top_k, num_experts, expert_capacity)
    _require_out("plan", out, Sizes(tokens, top_k, num_experts, expert_capacity), expert_ids)
    plan_out_op(expert_ids, num_experts, expert_capacity, policy, weights, out.maps)
    return out


def _require_tensor(operation, name, value):
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"[{operation}] {name} is {type(value).__name__}, but must be a torch.Tensor")


def require_all_or_none_on_meta(operation, like, **tensors):
    """Where some are, torch takes the operator's meta function and leaves the memory of the result as it was."""
    for name, tensor in tensors.items():
        if tensor is not None and tensor.is_meta != like.is_meta:
            raise ValueError(f"[{operation}] {name} is on {tensor.device}, but another argument is on {like.device}")


def _require_out(operation, out, sizes, like):
    if not isinstance(out, Plan) or out.sizes != sizes:
        raise ValueError(f"[{operation}] out is {out!r}, but must be a Plan of {sizes}")
    require_all_or_none_on_meta(operation, like, out=out.maps)


def _as_map(name, value):
    """[N] contiguous int32 of any integer dtype; what does not fit becomes a number that is out of every range."""
    _require_tensor("plan_from_bins", name, value)
    if value.dtype.is_floating_point or value.dtype.is_complex or value.dtype == torch.bool:
        raise TypeError(f"[plan_from_bins] {name} has dtype {value.dtype}, but must be an integer one")
    if value.dim() != 1:
        raise ValueError(f"[plan_from_bins] {name} has {value.dim()} dimensions, but must have one")
    if value.dtype == torch.int64:
        value = value.clamp(-1, 2**31 - 1)
    return value.to(torch.int32).contiguous()


def _plan_kernel(expert_ids, num_experts, expert_capacity, policy, weights):
    tokens, top_k = expert_ids.shape
    maps = expert_ids.new_empty(map_length(tokens, top_k, num_experts), dtype=torch.int32)
    native.plan_into(expert_ids, (tokens, top_k, num_experts, expert_capacity), policy, weights, maps)
    return maps


def _plan_out_kernel(expert_ids, num_experts, expert_capacity, policy, weights, maps):
    sizes = (*expert_ids.shape, num_experts, expert_capacity)
    native.plan_into(expert_ids, sizes, policy, weights, maps)
    increment_version(maps)


def _plan_fake(expert_ids, num_experts, expert_capacity, policy, weights):
    return expert_ids.new_empty(symbolic_map_length(*expert_ids.shape, num_experts), dtype=torch.int32)


_PLAN = "Tensor expert_ids, SymInt num_experts, SymInt expert_capacity, str policy, Tensor? weights"
plan_op = operator(f"plan({_PLAN}) -> Tensor", _plan_kernel, _plan_fake)
plan_out_op = operator(f"plan_out({_PLAN}, Tensor(a!) maps) -> ()", _plan_out_kernel, lambda *_: None)


def _plan_from_bins_kernel(indices, bin_ids, bins, tokens, top_k, expert_capacity):
    num_experts = bins.shape[0]
    maps = bins.new_empty(map_length(tokens, top_k, num_experts), dtype=torch.int32)
    native.plan_from_bins_into(indices, bin_ids, bins, (tokens, top_k, num_experts, expert_capacity), maps)
    return maps


def _plan_from_bins_out_kernel(indices, bin_ids, bins, tokens, top_k, expert_capacity, maps):
    sizes = (tokens, top_k, bins.shape[0], expert_capacity)
    native.plan_from_bins_into(indices, bin_ids, bins, sizes, maps)
    increment_version(maps)


def _plan_from_bins_fake(indices, bin_ids, bins, tokens, top_k, expert_capacity):
    return bins.new_empty(symbolic_map_length(tokens, top_k, bins.shape[0]), dtype=torch.int32)


_FROM_BINS = "Tensor indices, Tensor? bin_ids, Tensor bins, SymInt tokens, SymInt top_k, SymInt expert_capacity"
plan_from_bins_op = operator(f"plan_from_bins({_FROM_BINS}) -> Tensor", _plan_from_bins_kernel, _plan_from_bins_fake)
plan_from_bins_out_op = operator(
    f"plan_from_bins_out({_FROM_BINS}, Tensor(a!) maps) -> ()", _plan_from_bins_out_kernel, lambda *_: None
)
