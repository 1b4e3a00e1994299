"""Is a plan sound? Looked at on its own device; when it is not, the library names the fault."""

import torch

from binmoe.ascend import library
from binmoe.ascend.arguments import check_map


def _is_sound(plan):
    """One boolean on the plan's device: bins, bin_ids, indices, and their inverse."""
    count, capacity = plan.tokens * plan.top_k, plan.expert_capacity
    bins, rows = plan.bins.to(torch.int64), plan.row_of_assignment.reshape(-1).to(torch.int64)
    starts = torch.nn.functional.pad(bins[:-1], (1, 0))
    is_sorted = (bins >= starts).all() & (bins[-1] <= count)
    if count == 0:
        return is_sorted
    position = torch.arange(count, device=bins.device)
    is_listed = position < bins[-1]
    indices = plan.indices.to(torch.int64)
    expert = torch.searchsorted(bins, position, right=True).clamp(max=plan.num_experts - 1)
    offset = position - starts[expert]
    row = torch.where(offset < capacity, expert * capacity + offset, -1)
    in_range = (indices >= 0) & (indices < count)
    target = torch.where(is_listed & in_range, indices, count)  # the last bin takes what is not counted
    times = torch.bincount(target, minlength=count + 1)[:count]
    is_right = in_range & (plan.bin_ids == expert) & (rows[target.clamp(max=count - 1)] == row)
    is_tail = (indices == -1) & (plan.bin_ids == plan.num_experts)
    has_no_stray_row = ((times > 0) | (rows == -1)).all()
    return is_sorted & torch.where(is_listed, is_right, is_tail).all() & (times <= 1).all() & has_no_stray_row


def check_plan(plan, operation="check"):
    """Refuse a plan that is not sound. Waits for the device.

    Errors: library.LibraryError (code 2) with the check, position, value and limit; ValueError for a map of another
    length than the sizes say, and for ids out of range when the plan was made, which it took as masked.
    """
    for name in library.PLAN_MAPS[:-1]:
        check_map(plan, name, operation)
    if plan.status is not None:
        num_bad, position, value = plan.status.tolist()
        if num_bad > 0:
            raise ValueError(
                f"[{operation}] the plan was made from {num_bad} expert ids out of range: the first is {value} "
                f"at {position}, but ids must be from -1 to {plan.num_experts - 1}"
            )
    if not _is_sound(plan).item():
        library.check(plan)
        raise RuntimeError(f"[{operation}] the plan is not sound, but the library finds no fault: a bug of binmoe")
