"""What must hold of `pip install .` in a venv without torch: arrays work, and binmoe.torch says what it lacks."""

import binmoe
import ml_dtypes
import numpy as np

ids = np.array([[0, 1], [1, 0], [1, -1]])
plan = binmoe.plan(ids, num_experts=2, expert_capacity=2)
assert plan.load().dropped == 1
x = np.arange(12, dtype=np.float32).reshape(3, 4).astype(ml_dtypes.bfloat16)
out = binmoe.scatter(binmoe.gather(x, plan), plan)
assert out.dtype == x.dtype and np.array_equal(out.astype(np.float32), np.array([[2.0], [2.0], [0.0]]) * x)
try:
    import binmoe.torch
except ImportError as error:
    assert "torch" in str(error), error
else:
    raise AssertionError("torch is here: this venv is not fresh")
