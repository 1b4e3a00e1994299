"""The library by ctypes: where it is found, what it answers, how it refuses."""

from dataclasses import replace

import pytest
import torch
from binmoe.ascend import library


def test_the_named_library_is_the_one(monkeypatch, tmp_path):
    monkeypatch.setenv("BINMOE_LIBRARY", str(tmp_path / "none.so"))
    with pytest.raises(FileNotFoundError, match=r"none\.so, but there is no such file"):
        library.find_library()
    (tmp_path / "none.so").touch()
    assert library.find_library() == tmp_path / "none.so"


def checkout(root, *builds):
    """A tree such as ours with a package and libraries, each newer than the one before."""
    package = root / "python/binmoe/ascend"
    package.mkdir(parents=True)
    for age, build in enumerate(builds):
        path = root / build
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        import os

        os.utime(path, (1000 + age, 1000 + age))
    return str(package / "library.py")


def test_without_a_name_it_is_beside_the_package_or_the_newest_build_without_sanitizers(monkeypatch, tmp_path):
    monkeypatch.delenv("BINMOE_LIBRARY")
    builds = [f"build/{name}/lib/libbinmoe.so" for name in ("old", "release", "asan", "tsan")]
    monkeypatch.setattr(library, "__file__", checkout(tmp_path / "a", *builds))
    assert library.find_library() == tmp_path / "a/build/release/lib/libbinmoe.so"
    monkeypatch.setattr(library, "__file__", checkout(tmp_path / "b", "python/binmoe/libbinmoe.so", *builds))
    assert library.find_library() == tmp_path / "b/python/binmoe/libbinmoe.so"
    monkeypatch.setattr(library, "__file__", checkout(tmp_path / "c"))
    with pytest.raises(FileNotFoundError, match="cmake --preset release"):
        library.find_library()


def test_a_tile_plan_holds_its_numbers_and_a_budget_that_is_their_sum():
    tile = library.tile_plan(
        op="gather",
        order="expert",
        rows=torch.bfloat16,
        weights=torch.float32,
        tokens=16384,
        hidden_size=4096,
        num_experts=8,
        top_k=2,
        expert_capacity=5120,
    )
    assert (tile.order, tile.num_programs, tile.items) == ("expert", 40, 32768)
    assert tile.ub_bytes == sum(b.bytes * b.count for b in tile.buffers) <= tile.ub_limit_bytes
    assert tile.sub_block_size > 1 and tile.block_x * 2 % 32 == 0 and tile.buffers[0].name


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"op": "sort"}, ValueError, "'sort' is no operation; there are: plan, gather"),
        ({"order": "random"}, ValueError, "'random' is no order"),
        ({"soc": "910X"}, library.LibraryError, "910X"),
        ({"rows": torch.float64}, library.LibraryError, "rows of f64 are not taken"),
        ({"top_k": 0}, library.LibraryError, "top_k is 0, but must be at least 1"),
    ],
)
def test_a_tile_plan_that_cannot_be_is_refused(change, error, text):
    request = {
        "op": "gather",
        "rows": torch.float32,
        "tokens": 9,
        "hidden_size": 8,
        "num_experts": 2,
        "top_k": 1,
        "expert_capacity": 4,
    }
    with pytest.raises(error, match=text):
        library.tile_plan(**request | change)


def test_weights_and_priorities_may_have_any_layout():
    ids = torch.tensor([[0, 1], [0, 1], [0, -1]], dtype=torch.int32)
    priority = torch.tensor([[3.0, 1.0, 2.0], [1.0, 2.0, 9.0]]).t()
    plan = library.make_plan(ids, 2, 2, "by_weight", priority)
    assert plan.row_of_assignment.tolist() == [[0, 3], [-1, 2], [1, -1]]  # each expert's larger ones first
    x = torch.ones(3, 4)
    assert torch.equal(library.gather(plan, x, priority), library.gather(plan, x, priority.contiguous()))


def test_maps_of_another_length_or_dtype_are_refused():
    plan = library.make_plan(torch.tensor([[0], [1]], dtype=torch.int32), 2, 1)
    x = torch.ones(2, 4)
    for bad in (plan.indices.long(), plan.indices.repeat(2)[::2]):
        with pytest.raises(ValueError, match=r"indices is torch.int.*, but must be contiguous int32"):
            library.gather(replace(plan, indices=bad), x)
        with pytest.raises(ValueError, match=r"indices is torch.int.*, but must be contiguous int32"):
            library.plan_from_bins(bad, plan.bins, 2, 1, 1)
    with pytest.raises(ValueError, match="the plan's bins has 1 entries, but num_experts is 2"):
        library.gather(replace(plan, bins=plan.bins[:1]), x)
    with pytest.raises(ValueError, match="bin_ids has 1 entries, but indices has 2"):
        library.plan_from_bins(plan.indices, plan.bins, 2, 1, 1, plan.bin_ids[:1])
