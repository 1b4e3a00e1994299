"""The backends of the library that run here, with options. The Ascend model takes no f64: C++ tests and those of the
command line hold it against the same oracle."""

import platform

import binmoe_c

# Small outputs reach the stores of large ones only when told so, and every instruction set is a kernel of its own.
CPU_TARGETS = {"x86_64": ["x86-64-v4", "x86-64-v3", "x86-64-v2"], "aarch64": ["neon"]}.get(platform.machine(), [])
VARIANTS = ["reference", "cpu", "cpu stream_bytes=1"]
VARIANTS += [f"cpu target={target},stream_bytes=1" for target in CPU_TARGETS]
VARIANTS += ["cuda"] * (binmoe_c.backends()["cuda"] is None)
