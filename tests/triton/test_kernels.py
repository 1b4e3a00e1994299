"""What holds of our kernels' signatures: the levels themselves are `python -m binmoe.ascend.check`."""

import pytest

CONSTEXPRS = {"TOP_K", "BLOCK_TOKENS", "SUB_BLOCK_SIZE", "BLOCK_X", "ROW_COPY", "HAS_WEIGHTS", "HAS_TAIL"}


@pytest.fixture
def functions(ascend_check):
    from binmoe.ascend import kernels
    from binmoe.ascend.check.suite.table import KERNELS

    assert ascend_check.missing() is None
    return [getattr(kernels, entry.function) for entry in KERNELS.values()]


def test_every_kernel_of_the_package_is_checked(functions):
    from binmoe.ascend import kernels

    assert {f.__name__ for f in functions} == {name for name in vars(kernels) if name.endswith("_kernel")}


def test_no_length_of_a_batch_makes_another_variant(functions):
    for function in functions:
        constexprs = {p.name for p in function.params if p.is_constexpr}
        assert constexprs <= CONSTEXPRS, function.__name__
        specialised = [p.name for p in function.params if not (p.is_constexpr or p.do_not_specialize)]
        assert specialised == [], function.__name__


def test_names_are_no_longer_than_the_runtime_takes(functions):
    assert max(len(f.__name__) for f in functions) <= 49


def test_a_stale_mutant_is_an_error_and_not_a_survivor(ascend_check):
    from binmoe.ascend.check.suite import mutants
    from binmoe.ascend.check.suite.mutant_table import Mutant

    gone = Mutant("gone", "scatter", "rows", "a text that no kernel has", "")
    with pytest.raises(ValueError, match=r"mutant 'gone' is stale: rows.py has 'a text that no kernel has' 0 times"):
        mutants.replaced("def f(): pass", gone)


def test_a_mutant_that_is_no_kernel_is_an_error_and_not_found(ascend_check, monkeypatch):
    from binmoe.ascend.check.suite import mutants
    from binmoe.ascend.check.suite.mutant_table import SCATTER, Mutant

    text = "return base + row.to(tl.int64) * stride"
    for refused_by in ((), ("lowered run", "IR", "UB")):
        broken = Mutant("broken", SCATTER, "rows", text, "return base + nothing", refused_by=refused_by)
        monkeypatch.setattr(mutants, "MUTANTS", (*mutants.MUTANTS, broken))
        if refused_by:
            assert mutants.find(broken).found_by == refused_by
        else:
            with pytest.raises(ascend_check.LoweringError, match="nothing"):
                mutants.find(broken)


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_dw_that_is_not_finite_or_dropped_must_be_met_exactly(ascend_check, dtype):
    import types

    import torch
    from binmoe.ascend.check.suite.problems import DTYPES
    from binmoe.ascend.check.suite.running import dw_difference

    assert ascend_check.missing() is None
    inf, nan = float("inf"), float("nan")
    rows = torch.tensor([[0], [1], [2], [3], [-1]])
    problem = types.SimpleNamespace(plan=types.SimpleNamespace(row_of_assignment=rows), dw_bound=lambda: torch.zeros(5))
    want = torch.tensor([1.0, inf, -inf, nan, 0.0])
    assert dw_difference(want.to(DTYPES[dtype]), want, problem, dtype) is None
    for place, wrong in enumerate(((inf, nan, 1.1), (5.0, -inf, nan), (0.0, inf), (inf, 1.0), (-0.0, nan))):
        for value in wrong:
            got = want.clone()
            got[place] = value
            assert dw_difference(got.to(DTYPES[dtype]), want, problem, dtype).startswith(f"dw[{place}] is "), value
