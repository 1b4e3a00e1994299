"""The figures in data/traces/README.md come out of every *_ids.npy through plan and capacity."""

import numpy as np
import pytest
from program import TRACES, read_plan, run_json

IDS = sorted(path.name.removesuffix("_ids.npy") for path in TRACES.glob("*_ids.npy"))


def read_table():
    """{file stem: {column: text}} of the README's first table."""
    lines = (TRACES / "README.md").read_text().split("## Files\n")[1].split("\n\n")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: dict(zip(cells[0], row, strict=True)) for row in cells[2:]}


TABLE = read_table()


def test_the_table_names_every_file():
    assert sorted(TABLE) == IDS
    assert len(IDS) == 27


@pytest.mark.parametrize("stem", IDS)
def test_the_load_and_the_drops_of_a_trace(stem, tmp_path):
    row = TABLE[stem]
    experts = int(row["experts E"])
    common = ["--expert-ids", TRACES / f"{stem}_ids.npy", "--num-experts", experts]
    shares = {}
    for factor, column in (("1", "dropped CF1.0"), ("1.25", "CF1.25"), ("2", "CF2.0")):
        out = tmp_path / f"plan{factor}"
        got = run_json("plan", *common, "--capacity-factor", factor, "--out", out)
        assert (got["tokens"], got["top_k"]) == (int(row["tokens T"]), int(row["top_k"]))
        assignments = got["tokens"] * got["top_k"]
        assert got["kept"] + got["dropped"] == assignments
        assert got["kept"] == read_plan(out)["kept_per_expert"].sum()
        shares[float(factor)] = got["dropped"] / assignments
        assert f"{shares[float(factor)]:.3f}" == row[column]

    load = np.array(got["tokens_per_expert"])
    assert f"{got['max_over_mean_load']:.2f}" == row["load max/mean"]
    assert (load == 0).sum() == int(row["unused experts"])
    ratio, groups = row["group max/mean (groups)"].split(" (")
    by_group = load.reshape(int(groups.removesuffix(")")), -1).sum(1)
    assert f"{by_group.max() / by_group.mean():.2f}" == ratio

    points = run_json("capacity", *common)["points"]
    for point in points:
        if point["capacity_factor"] in shares:
            assert point["dropped_share"] == shares[point["capacity_factor"]]
