"""Every refusal: its exit code, its text, and that no output appeared or changed."""

import json

import numpy as np
import pytest
from program import BF16, make_plan, refused, run, run_json, save, tree


@pytest.fixture
def files(plan, tmp_path):
    """Good inputs for the plan of conftest, and an old file where every output goes."""
    save(tmp_path / "x.npy", np.ones((4, 5), np.float32))
    save(tmp_path / "y.npy", np.ones((3, 2, 5), np.float32))
    save(tmp_path / "w.npy", np.ones((4, 2), np.float32))
    (tmp_path / "out.npy").write_bytes(b"old")
    (tmp_path / "dw.npy").write_bytes(b"old too")
    return tmp_path


def refused_and_untouched(folder, *arguments, code=1):
    """stderr of a command that must change nothing in its folder."""
    before = tree(folder)
    message = refused(*arguments, code=code)
    assert tree(folder) == before
    return message


# Usage: what the command line alone decides.

PLAN = ["plan", "--expert-ids", "{}/ids.npy", "--out", "{}/new", "--num-experts"]
USAGE = [
    ([], "no command was given; see binmoe --help"),
    (["fly"], "The following argument was not expected: fly"),
    (["plan"], "--expert-ids is required"),
    ([*PLAN, 3, "--expert-capacity", 2, "--fast"], "The following argument was not expected: --fast"),
    ([*PLAN, 3], "give one of --expert-capacity and --capacity-factor"),
    ([*PLAN, 3, "--expert-capacity", 1, "--capacity-factor", 1], "give one of --expert-capacity and --capacity-factor"),
    ([*PLAN, 0, "--expert-capacity", 2], "--num-experts is 0, but must be at least 1"),
    ([*PLAN, -4, "--expert-capacity", 2], "--num-experts is -4, but must be at least 1"),
    ([*PLAN, 3, "--expert-capacity", -1], "--expert-capacity is -1, but must be at least 0"),
    ([*PLAN, 3, "--capacity-factor", "nan"], "--capacity-factor must be finite and not negative"),
    ([*PLAN, 3, "--capacity-factor", "inf"], "--capacity-factor must be finite and not negative"),
    ([*PLAN, 3, "--capacity-factor", "-0.5"], "--capacity-factor must be finite and not negative"),
    ([*PLAN, 3, "--capacity-factor", "1e999"], "'1e999' is out of range"),
    ([*PLAN, 3, "--capacity-factor", "1,5"], "'1,5' is not a number"),
    ([*PLAN, 3, "--capacity-factor", 1, "--multiple", 0], "--multiple is 0, but must be at least 1"),
    ([*PLAN, 3, "--expert-capacity", 1, "--multiple", 8], "--multiple requires --capacity-factor"),
    ([*PLAN, "3.5", "--expert-capacity", 2], "'3.5' is not a whole number"),
    ([*PLAN, "0x3", "--expert-capacity", 2], "'0x3' is not a whole number"),
    ([*PLAN, "", "--expert-capacity", 2], "'' is not a whole number"),
    ([*PLAN, 3, "--expert-capacity", 2, "--policy", "random"], "--policy is 'random'; there are: token_order"),
    ([*PLAN, 3, "--expert-capacity", 2, "--policy", "by_weight"], "--policy by_weight needs --weights"),
    ([*PLAN, 3, "--expert-capacity", 2, "--weights", "w.npy"], "--weights are used by --policy by_weight only"),
    ([*PLAN, 3, "--expert-capacity", 2, "--backend", "gpu"], "no backend is called 'gpu'; there are: cuda, cpu, "),
    ([*PLAN, 3, "--expert-capacity", 2, "--backend", "reference", "--options", "a=1"], "takes no options"),
    ([*PLAN, 3, "--expert-capacity", 2, "--threads", 0], "--threads is 0, but must be from 1 to 1024"),
    ([*PLAN, 3, "--expert-capacity", 2, "--threads", 2000], "--threads is 2000, but must be from 1 to 1024"),
    ([*PLAN, 3, "--expert-capacity", 2, "--dtype", "f8"], "f8 not in {bf16}"),
    (["capacity", "--expert-ids", "{}/ids.npy", "--num-experts", 0], "--num-experts is 0, but must be at least 1"),
    (["check"], "give --plan, or --indices and --bins"),
    (["check", "--plan", "{}/plan", "--bins", "b.npy"], "give --plan, or --indices and --bins"),
    (["check", "--indices", "i.npy"], "give --plan, or --indices and --bins"),
    (["check", "--indices", "i.npy", "--bins", "b.npy", "--top-k", 1], "need --num-tokens and --top-k"),
    (["check", "--plan", "{}/plan", "--top-k", 1], "go with --indices and --bins"),
    (["check", "--indices", "i", "--bins", "b", "--num-tokens", 1, "--top-k", 0], "--top-k is 0, but must be at"),
    (["check", "--indices", "i", "--bins", "b", "--num-tokens", -1, "--top-k", 1], "--num-tokens is -1, but must be"),
    (["check", "--plan", "{}/plan", "--backend", "gpu"], "no backend is called 'gpu'"),
    (["gather", "--plan", "{}/plan", "--out", "{}/new.npy"], "--x is required"),
    (["scatter", "--plan", "{}/plan", "--y", "{}/y.npy"], "--out is required"),
    (["gather-backward", "--plan", "{}/plan", "--grad", "{}/y.npy", "--x", "{}/x.npy", "--out", "{}/new.npy"],
     "--x requires --out-weights"),
    (["gather-backward", "--plan", "{}/plan", "--grad", "{}/y.npy", "--out-weights", "{}/n.npy", "--out", "{}/new.npy"],
     "--out-weights requires --x"),
    (["scatter-backward", "--plan", "{}/plan", "--y", "{}/y.npy", "--grad", "{}/x.npy", "--out-y", "{}/new.npy",
      "--out-weights", "{}/./new.npy"], "two outputs cannot have one name"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "text"), USAGE, ids=[text for _, text in USAGE])
def test_wrong_usage_ends_with_2(arguments, text, files):
    arguments = [str(argument).replace("{}", str(files)) for argument in arguments]
    assert text in refused_and_untouched(files, *arguments, code=2)


def test_a_backend_of_the_environment_is_asked_for_too(files):
    done = run("gather", "--plan", files / "plan", "--x", files / "x.npy", "--out", files / "new.npy", code=2,
               BINMOE_BACKEND="gpu")  # fmt: skip
    assert "BINMOE_BACKEND: no backend is called 'gpu'; there are: cuda, cpu, reference" in done.stderr
    assert not (files / "new.npy").exists()


def test_no_choice_at_all_is_wrong_usage(files):
    ids = save(files / "none.npy", np.zeros((4, 0), np.int32))
    common = ["--expert-ids", ids, "--num-experts", 3]
    for arguments in (["plan", *common, "--expert-capacity", 1, "--out", files / "new"], ["capacity", *common]):
        message = refused_and_untouched(files, *arguments, code=2)
        assert message == f"binmoe: {ids}: top_k is 0, but must be at least 1\n"


# Data: the router's choice.

IDS = [
    (np.int32([[0, 3]]), "expert_ids[1] is 3, but must be in [-1, 3) (check expert_id_range)"),
    (np.int32([[0, 1], [-2, 9]]), "expert_ids[2] is -2, but must be in [-1, 3) (check expert_id_range)"),
    (np.int64([[2**32]]), "expert_ids[0] is 4294967296, but must be in [-1, 3) (check expert_id_range)"),
    (np.uint8([[255]]), "expert_ids[0] is 255, but must be in [-1, 3) (check expert_id_range)"),
    (np.int32([0, 1]), "its shape is [2], but must be [tokens, top_k]"),
    (np.zeros((1, 2, 1), np.int32), "its shape is [1, 2, 1], but must be [tokens, top_k]"),
    (np.int32(1), "its shape is [], but must be [tokens, top_k]"),
    (np.float32([[1]]), "its dtype is '<f4', but expert ids are int8, uint8, int16, uint16, int32 or int64"),
    (np.uint32([[1]]), "its dtype is '<u4', but expert ids are int8, uint8, int16, uint16, int32 or int64"),
    (np.uint64([[1]]), "its dtype is '<u8', but expert ids are int8, uint8, int16, uint16, int32 or int64"),
    (np.array([[True]]), "its dtype is '|b1', but expert ids are int8, uint8, int16, uint16, int32 or int64"),
]


@pytest.mark.parametrize(("ids", "text"), IDS, ids=[text for _, text in IDS])
def test_wrong_ids_end_with_1(ids, text, files):
    path = save(files / "bad.npy", ids)
    common = ["--expert-ids", path, "--num-experts", 3]
    for arguments in (["plan", *common, "--expert-capacity", 1, "--out", files / "plan"], ["capacity", *common]):
        assert refused_and_untouched(files, *arguments) == f"binmoe: {path}: {text}\n"


@pytest.mark.parametrize(
    ("experts", "capacity", "text"),
    [
        (3, ["--expert-capacity", 2**31], "--expert-capacity is 2147483648, but must be below 2^31"),
        (2**31, ["--expert-capacity", 1], "--num-experts is 2147483648, but must be below 2^31"),
        (2**16, ["--expert-capacity", 2**15], "num_experts * expert_capacity is 65536 * 32768, but must be below 2^31"),
        (3, ["--capacity-factor", 1e30], "but there must be fewer than 2^31 in all"),
    ],
)
def test_sizes_too_large_end_with_1(experts, capacity, text, files):
    common = ["plan", "--expert-ids", files / "ids.npy", "--out", files / "new", "--num-experts", experts]
    assert text in refused_and_untouched(files, *common, *capacity)


def test_priority_weights_are_checked(files):
    common = ["plan", "--expert-ids", files / "ids.npy", "--num-experts", 3, "--expert-capacity", 2, "--out",
              files / "new", "--policy", "by_weight", "--weights", files / "bad.npy"]  # fmt: skip
    for weights, text in (
        (np.ones((2, 4), np.float32), "its shape is [2, 4], but weights are [tokens, top_k] = [4, 2] or flat [8]"),
        (np.ones(7, np.float32), "its shape is [7], but weights are [tokens, top_k] = [4, 2] or flat [8]"),
        (np.ones((4, 2), np.int32), "its dtype is '<i4', but must be f32, f64, bf16 or f16"),
        (np.ones((4, 2), np.uint16), "its dtype is '<u2', uint16; with --dtype bf16 it is read as bf16"),
    ):
        save(files / "bad.npy", weights)
        assert refused_and_untouched(files, *common) == f"binmoe: {files / 'bad.npy'}: {text}\n"


# Data: rows and weights. {option: array} replaces a good input of each operation.

OPERATIONS = {
    "gather": {"--x": "x", "--weights": "w", "--out": "out"},
    "scatter": {"--y": "y", "--weights": "w", "--out": "out"},
    "wgrad": {"--y": "y", "--grad": "x", "--out": "out"},
    "scatter-backward": {"--y": "y", "--grad": "x", "--weights": "w", "--out-y": "out", "--out-weights": "dw"},
    "gather-backward": {"--grad": "y", "--x": "x", "--weights": "w", "--out": "out", "--out-weights": "dw"},
}
TOKENS = [
    (np.ones((5, 5), np.float32), "its shape is [5, 5], but must be [tokens, hidden_size] = [4, 5]"),
    (np.ones(20, np.float32), "its shape is [20], but must be [tokens, hidden_size]"),
    (np.ones((2, 2, 5), np.float32), "its shape is [2, 2, 5], but must be [tokens, hidden_size]"),
    (np.ones((4, 5), np.int32), "its dtype is '<i4', but must be f32, f64, bf16 or f16"),
    (np.ones((4, 5), np.complex64), "its dtype is '<c8', but must be f32, f64, bf16 or f16"),
    (np.ones((4, 5), np.uint16), "its dtype is '<u2', uint16; with --dtype bf16 it is read as bf16"),
]
EXPERT_ROWS = [
    (np.ones((6, 5), np.float32), "its shape is [6, 5], but must be [num_experts, expert_capacity, hidden_size]"),
    (
        np.ones((2, 3, 5), np.float32),
        "its shape is [2, 3, 5], but must be [num_experts, expert_capacity, hidden_size] = [3, 2, 5]",
    ),
    (np.ones((3, 2, 5), np.int32), "its dtype is '<i4', but must be f32, f64, bf16 or f16"),
]
WEIGHTS = [
    (np.ones((2, 4), np.float32), "its shape is [2, 4], but weights are [tokens, top_k] = [4, 2] or flat [8]"),
    (np.ones((4, 2, 1), np.float32), "its shape is [4, 2, 1], but weights are [tokens, top_k] = [4, 2] or flat [8]"),
    (np.ones((4, 2), np.int64), "its dtype is '<i8', but must be f32, f64, bf16 or f16"),
]
BAD = {"x": TOKENS, "y": EXPERT_ROWS, "w": WEIGHTS}
BAD_INPUTS = [
    (operation, option, array, text)
    for operation, roles in OPERATIONS.items()
    for option, role in roles.items()
    for array, text in BAD.get(role, [])
]


def arguments_of(operation, folder, **replaced):
    roles = OPERATIONS[operation]
    pairs = [(option, replaced.get(option.strip("-"), folder / f"{role}.npy")) for option, role in roles.items()]
    return [operation, "--plan", folder / "plan", *(item for pair in pairs for item in pair)]


@pytest.mark.parametrize(("operation", "option", "array", "text"), BAD_INPUTS)
def test_wrong_rows_and_weights_end_with_1(operation, option, array, text, files):
    bad = save(files / "bad.npy", array)
    arguments = arguments_of(operation, files, **{option.strip("-"): bad})
    assert refused_and_untouched(files, *arguments) == f"binmoe: {bad}: {text}\n"


@pytest.mark.parametrize("operation", ["wgrad", "scatter-backward", "gather-backward"])
@pytest.mark.parametrize("dtype", [np.float64, BF16])
def test_rows_of_two_dtypes_or_widths_are_refused(operation, dtype, files):
    option = "x" if operation == "gather-backward" else "grad"
    bad = save(files / "bad.npy", np.ones((4, 5)).astype(dtype))
    message = refused_and_untouched(files, *arguments_of(operation, files, **{option: bad}))
    name = "f64" if dtype is np.float64 else "bf16"
    assert f"{bad}: its dtype is {name}, but that of {files / 'y.npy'} is f32" in message
    save(files / "bad.npy", np.ones((4, 6), np.float32))
    message = refused_and_untouched(files, *arguments_of(operation, files, **{option: bad}))
    assert message == f"binmoe: {bad}: its shape is [4, 6], but must be [tokens, hidden_size] = [4, 5]\n"


@pytest.mark.parametrize("operation", ["gather", "scatter", "scatter-backward", "gather-backward"])
def test_f64_weights_go_with_f64_rows_only(operation, files):
    bad = save(files / "bad.npy", np.ones((4, 2)))
    message = refused_and_untouched(files, *arguments_of(operation, files, weights=bad))
    rows = files / ("x.npy" if operation in ("gather", "scatter-backward") else "y.npy")
    text = f"weights are f64, but the rows of {rows} are f32; f64 weights go with f64 rows only"
    assert message == f"binmoe: {bad}: {text}\n"


def test_an_output_that_cannot_be_allocated_states_the_bytes(tmp_path):
    plan = make_plan(tmp_path, np.int32([[0]]), 1000, 2_000_000)
    x = save(tmp_path / "x.npy", np.ones((1, 100_000), np.float32))
    before = tree(tmp_path)
    message = refused("gather", "--plan", plan, "--x", x, "--out", tmp_path / "y.npy")
    assert message == f"binmoe: {tmp_path / 'y.npy'}: cannot allocate 800000000000000 bytes\n"
    assert tree(tmp_path) == before


# Data: plans.

FAULTS = [
    ("bins", [-1, 5, 7], "bins", ["bins_nonnegative", 0, -1, 0]),
    ("bins", [3, 2, 7], "bins", ["bins_monotonic", 1, 2, 3]),
    ("bins", [3, 5, 8], "bins", ["bins_end", 2, 8, 7]),
    ("bins", [3, 5, 6], "bins", ["bins_end", 2, 6, 7]),
    ("bins", [2, 5, 7], "bin_ids", ["bin_ids", 2, 0, 1]),
    ("bin_ids", [0, 0, 0, 1, 2, 2, 2], "bin_ids", ["bin_ids", 4, 2, 1]),
    ("indices", [0, 3, 8, 1, 4, 2, 7], "indices", ["index_range", 2, 8, 8]),
    ("indices", [0, -1, 5, 1, 4, 2, 7], "indices", ["index_range", 1, -1, 8]),
    ("indices", [0, 3, 5, 1, 3, 2, 7], "indices", ["index_unique", 4, 3, 1]),
    ("tokens_per_expert", [3, 3, 2], "tokens_per_expert", ["tokens_per_expert", 1, 3, 2]),
    ("kept_per_expert", [3, 2, 2], "kept_per_expert", ["kept_per_expert", 0, 3, 2]),
    ("row_of_assignment", [[0, 2], [4, 1], [3, 1], [-1, 5]], "row_of_assignment", ["row_of_assignment", 5, 1, -1]),
    ("row_of_assignment", [[0, 2], [4, 1], [3, -1], [0, 5]], "row_of_assignment", ["row_of_assignment", 6, 0, -1]),
]


@pytest.mark.parametrize(("name", "values", "where", "fault"), FAULTS, ids=[str(fault) for *_, fault in FAULTS])
def test_a_faulty_plan_is_found_by_check_and_refused_by_movers(name, values, where, fault, files):
    save(files / f"plan/{name}.npy", np.int32(values))
    check, position, value, limit = fault
    want = {"valid": False, "error": {"check": check, "position": position, "value": value, "limit": limit}}
    assert run_json("check", "--plan", files / "plan", code=1) == want
    message = refused("check", "--plan", files / "plan")
    assert message.startswith(f"binmoe: {files}/plan/{where}.npy: {where}[{position}] is {value}, ")
    assert message.endswith(f"(check {check})\n")
    assert str(limit) in message or "must not be negative" in message
    for operation in OPERATIONS:
        assert refused_and_untouched(files, *arguments_of(operation, files)) == message


FILES = [
    ("indices", np.int32([[0, 3, 5, 1, 4, 2, 7]]), "its shape is [1, 7], but must be [N]"),
    ("bin_ids", np.int32([0, 0, 0, 1, 1, 2]), "its shape is [6], but must be that of indices = [7]"),
    ("bins", np.int32([3, 5, 7, 7]), "its shape is [4], but must be [num_experts] = [3]"),
    ("tokens_per_expert", np.int32([3, 2]), "its shape is [2], but must be [num_experts] = [3]"),
    ("row_of_assignment", np.zeros(8, np.int32), "its shape is [8], but must be [tokens, top_k] = [4, 2]"),
    ("kept_per_expert", np.int64([2, 2, 2]), "its dtype is '<i8', but must be int32"),
    ("indices", np.float32([0, 3, 5, 1, 4, 2, 7]), "its dtype is '<f4', but must be int32"),
]


@pytest.mark.parametrize(("name", "array", "text"), FILES, ids=[text for *_, text in FILES])
def test_files_of_a_plan_must_have_its_shapes(name, array, text, files):
    path = save(files / f"plan/{name}.npy", array)
    for operation in ("gather", "scatter"):
        message = refused_and_untouched(files, *arguments_of(operation, files))
        assert message == f"binmoe: {path}: {text}\n"
    assert refused("check", "--plan", files / "plan") == message


JSON = [
    ("{", "it is not a JSON object"),
    ("[1]", "it is not a JSON object"),
    ("[" * 100000, "it is not a JSON object"),
    ({"format_version": 2}, "its format_version is 2, but this program reads 1"),
    ({"tokens": None}, "the field tokens is not a whole number"),
    ({"tokens": 4.0}, "the field tokens is not a whole number"),
    ({"tokens": 2**63}, "the field tokens is not a whole number"),
    ({"tokens": -1}, "the field tokens is -1, but must be from 0 to 2147483647"),
    ({"top_k": 0}, "the field top_k is 0, but must be from 1 to 2147483647"),
    ({"num_experts": 0}, "the field num_experts is 0, but must be from 1 to 2147483647"),
    ({"num_experts": 2**31}, "the field num_experts is 2147483648, but must be from 1 to 2147483647"),
    ({"expert_capacity": -1}, "the field expert_capacity is -1, but must be from 0 to 2147483647"),
    ({"tokens": 2**30}, "tokens * top_k and num_experts * expert_capacity must be below 2^31"),
    ({"expert_capacity": 2**30}, "tokens * top_k and num_experts * expert_capacity must be below 2^31"),
]


@pytest.mark.parametrize(("change", "text"), JSON, ids=[text for _, text in JSON])
def test_plan_json_is_checked(change, text, files):
    path = files / "plan/plan.json"
    path.write_text(change if isinstance(change, str) else json.dumps(json.loads(path.read_text()) | change))
    assert refused_and_untouched(files, *arguments_of("gather", files)) == f"binmoe: {path}: {text}\n"


def test_a_folder_that_is_no_plan_is_refused(files):
    message = refused_and_untouched(files, "gather", "--plan", files, "--x", files / "x.npy", "--out", files / "n.npy")
    assert message == f"binmoe: {files / 'plan.json'}: cannot be read; is it the folder of a plan?\n"
    path = files / "plan/plan.json"
    path.write_text(path.read_text().replace('"top_k"', '"topk"'))
    assert "it lacks the field top_k" in refused("check", "--plan", files / "plan")
    (files / "plan/bins.npy").unlink()
    path.write_text(path.read_text().replace('"topk"', '"top_k"'))
    message = refused("check", "--plan", files / "plan")
    assert message == f"binmoe: {files / 'plan/bins.npy'}: cannot be read: No such file or directory\n"


OTHERS = [
    ([0, 1, 2], [3, 2], None, "b", ["bins_monotonic", 1, 2, 3]),
    ([0, 1, 2], [-1, 3], None, "b", ["bins_nonnegative", 0, -1, 0]),
    ([0, 1, 2], [1, 4], None, "b", ["bins_end", 1, 4, 3]),
    ([0, 1, 2], [1, 3], [0, 0, 1], "e", ["bin_ids", 1, 0, 1]),
    ([0, 1, 4], [1, 3], None, "i", ["index_range", 2, 4, 4]),
    ([0, 1, 0], [1, 3], [0, 1, 1], "i", ["index_unique", 2, 0, 0]),
    ([0, 1, 2, 3, 0], [1, 5], None, "b", ["bins_limit", 1, 5, 4]),
    ([0, 1, 2, 3, 0], [1, 4], None, "b", ["bins_end", 1, 4, 5]),
    ([0, 1, 2, 3, 0], [5, 4], None, "b", ["bins_monotonic", 1, 4, 5]),
]


@pytest.mark.parametrize(("indices", "bins", "bin_ids", "where", "fault"), OTHERS, ids=[str(row) for row in OTHERS])
def test_bins_of_another_system_are_checked(indices, bins, bin_ids, where, fault, tmp_path):
    arguments = ["check", "--indices", save(tmp_path / "i.npy", np.int32(indices)), "--bins",
                 save(tmp_path / "b.npy", np.int32(bins)), "--num-tokens", 2, "--top-k", 2]  # fmt: skip
    if bin_ids is not None:
        arguments += ["--bin-ids", save(tmp_path / "e.npy", np.int32(bin_ids))]
    got = run_json(*arguments, code=1)
    assert not got["valid"]
    assert list(got["error"].values()) == fault
    assert list(got["error"]) == ["check", "position", "value", "limit"]
    assert refused(*arguments).startswith(f"binmoe: {tmp_path}/{where}.npy: ")
