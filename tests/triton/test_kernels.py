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
