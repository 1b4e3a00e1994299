"""The plan of a routing by torch operations, on any device: sort, bincount, cumsum. A counting sort in Triton would be
scalar work on a vector core."""

from dataclasses import dataclass

import torch

POLICIES = ("token_order", "choice_order", "by_weight")
ID_TYPES = (torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.int64)
LIMIT = 2**31  # maps are int32


@dataclass(frozen=True)
class Plan:
    """Who goes where. Maps are int32, on one device; docs/design.md, section 1, has the words.

    indices, bin_ids   [tokens * top_k] sorted; past the unmasked assignments -1 and num_experts
    bins, tokens_per_expert, kept_per_expert   [num_experts]
    row_of_assignment  [tokens, top_k]
    status             [3] int64, or None: how many ids were out of range, the first one's position, its value
    """

    tokens: int
    top_k: int
    num_experts: int
    expert_capacity: int
    indices: torch.Tensor
    bin_ids: torch.Tensor
    bins: torch.Tensor
    tokens_per_expert: torch.Tensor
    kept_per_expert: torch.Tensor
    row_of_assignment: torch.Tensor
    status: torch.Tensor | None = None

    @property
    def expert_rows(self) -> int:
        return self.num_experts * self.expert_capacity


def check_sizes(operation, tokens, top_k, num_experts, expert_capacity):
    """Errors: ValueError; a count that is too small, or a map that int32 cannot number."""
    for name, value, least in (("tokens", tokens, 0), ("top_k", top_k, 1), ("num_experts", num_experts, 1)):
        if value < least:
            raise ValueError(f"[{operation}] {name} is {value}, but must be at least {least}")
    if expert_capacity < 0:
        raise ValueError(f"[{operation}] expert_capacity is {expert_capacity}, but must not be negative")
    for names, a, b in (
        ("tokens * top_k", tokens, top_k),
        ("num_experts * expert_capacity", num_experts, expert_capacity),
    ):
        if a * b >= LIMIT:
            raise ValueError(f"[{operation}] {names} is {a} * {b}, but must be below 2^31")


def _by_expert(keys, num_experts):
    """Stable order by expert; masked assignments last."""
    return torch.sort(torch.where(keys < 0, num_experts, keys), stable=True).indices


def _numbers(priority):
    """As numbers that sort as the policy says: larger first, -0 as +0, NaN last."""
    wide = priority.to(torch.float64) if priority.dtype == torch.float64 else priority.to(torch.float32)
    return torch.where(torch.isnan(wide), torch.inf, -wide + 0.0), torch.isnan(wide)


def _order(experts, tokens, top_k, num_experts, policy, priority):
    """Positions -> assignments, sorted by expert and inside an expert by the policy."""
    if policy == "token_order":
        return _by_expert(experts, num_experts)
    count = tokens * top_k
    if policy == "choice_order":
        first = torch.arange(count, device=experts.device).view(tokens, top_k).t().reshape(-1)
    else:
        numbers, is_nan = _numbers(priority.reshape(-1))
        first = torch.sort(numbers, stable=True).indices
        first = first[torch.sort(is_nan[first].to(torch.int8), stable=True).indices]  # NaN after -infinity
    return first[_by_expert(experts[first], num_experts)]


def plan(expert_ids, num_experts, expert_capacity, policy="token_order", priority=None):
    """Sort the assignments by expert and cut each expert at its capacity.

      expert_ids  [tokens, top_k] int8, uint8, int16, uint16, int32, int64; -1 is masked; an id out of [-1, num_experts)
                  counts as masked and is told in `status`
      priority    [tokens, top_k] or [tokens * top_k] f32, f64, bf16, f16; for the policy by_weight, and only there
    Errors: ValueError, before any work: shapes, dtypes, sizes, the policy.
    Cost: O(tokens * top_k + num_experts) memory; one to three sorts. Nothing waits for the device but what
    torch.bincount may.
    Order: the maps are the library's, in every policy.
    """
    if expert_ids.dim() != 2:
        raise ValueError(f"[plan] expert_ids has {expert_ids.dim()} dimensions, but must have 2: [tokens, top_k]")
    if expert_ids.dtype not in ID_TYPES:
        raise ValueError(f"[plan] expert_ids are {expert_ids.dtype}, but must be integers of 8 to 64 bits (no uint32)")
    tokens, top_k = expert_ids.shape
    check_sizes("plan", tokens, top_k, num_experts, expert_capacity)
    if policy not in POLICIES:
        raise ValueError(f"[plan] '{policy}' is no drop policy; there are: {', '.join(POLICIES)}")
    if (policy == "by_weight") != (priority is not None):
        needs = "needs" if priority is None else "does not use"
        raise ValueError(f"[plan] the policy {policy} {needs} weights")
    if priority is not None and tuple(priority.shape) not in ((tokens, top_k), (tokens * top_k,)):
        raise ValueError(f"[plan] priority has shape {list(priority.shape)}, but the ids have [{tokens}, {top_k}]")

    ids = expert_ids.reshape(-1).to(torch.int64)
    is_bad = (ids < -1) | (ids >= num_experts)
    experts = torch.where(is_bad, -1, ids)
    order = _order(experts, tokens, top_k, num_experts, policy, priority)
    # Masked ones count in a bin of their own, past the experts.
    counts = torch.bincount(torch.where(experts < 0, num_experts, experts), minlength=num_experts + 1)[:num_experts]
    sizes, sorted_experts = (tokens, top_k, num_experts, expert_capacity), experts[order]
    indices = torch.where(sorted_experts < 0, -1, order)
    return _finish(sizes, indices, sorted_experts, torch.cumsum(counts, 0), _status(ids, is_bad))


def plan_from_bins(indices, bins, tokens, top_k, expert_capacity, bin_ids=None):
    """A plan from sorted bins made elsewhere (MegaBlocks): any order inside an expert; the first ones are kept.

      indices  [n] int32 assignments; bins [num_experts] int32 inclusive sums; bin_ids [n] int32, else derived
    Errors: ValueError: sizes. What the arrays hold is looked at by binmoe.ascend.check_plan.
    """
    num_experts, count = bins.numel(), indices.numel()
    check_sizes("plan", tokens, top_k, num_experts, expert_capacity)
    if count > tokens * top_k:
        raise ValueError(f"[plan] indices has {count} entries, but tokens * top_k is {tokens * top_k}")
    if bin_ids is not None and bin_ids.numel() != count:
        raise ValueError(f"[plan] bin_ids has {bin_ids.numel()} entries, but indices has {count}")
    wide_bins = bins.to(torch.int64)
    if bin_ids is None:
        bin_ids = torch.searchsorted(wide_bins, torch.arange(count, device=bins.device), right=True)
    room = (0, tokens * top_k - count)
    padded = torch.nn.functional.pad(indices.to(torch.int64), room, value=-1)
    experts = torch.nn.functional.pad(bin_ids.to(torch.int64), room, value=-1)
    return _finish((tokens, top_k, num_experts, expert_capacity), padded, experts, wide_bins, None)


def _status(ids, is_bad):
    """How many ids are out of range, where the first stands, and its value; without a wait."""
    if ids.numel() == 0:
        return torch.zeros(3, dtype=torch.int64, device=ids.device)
    num_bad, first = is_bad.sum(), torch.argmax(is_bad.to(torch.int8))
    return torch.stack((num_bad, torch.where(num_bad > 0, first, 0), torch.where(num_bad > 0, ids[first], 0)))


def _finish(sizes, indices, experts, bins, status):
    """The maps, from sorted assignments and their experts (-1 past the unmasked ones) and the inclusive counts."""
    tokens, top_k, num_experts, expert_capacity = sizes
    count = tokens * top_k
    counts = torch.diff(bins, prepend=bins.new_zeros(1))
    expert = experts.clamp(0, num_experts - 1)
    offset = torch.arange(count, device=bins.device) - (bins - counts)[expert]
    is_kept = (experts >= 0) & (offset >= 0) & (offset < expert_capacity)
    # What is no assignment goes to a place of its own, past the last.
    target = torch.where((experts >= 0) & (indices >= 0) & (indices < count), indices, count)
    rows = torch.full((count + 1,), -1, dtype=torch.int64, device=bins.device)
    rows[target] = torch.where(is_kept, expert * expert_capacity + offset, -1)
    return Plan(
        tokens,
        top_k,
        num_experts,
        expert_capacity,
        indices=indices.to(torch.int32),
        bin_ids=torch.where(experts < 0, num_experts, experts).to(torch.int32),
        bins=bins.to(torch.int32),
        tokens_per_expert=counts.to(torch.int32),
        kept_per_expert=counts.clamp(max=expert_capacity).to(torch.int32),
        row_of_assignment=rows[:count].to(torch.int32).view(tokens, top_k),
        status=status,
    )
