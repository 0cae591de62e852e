"""`matgrad program --ranks`: the equations of a rank, and what it exchanges with the others."""

from __future__ import annotations

import json

from cli_support import succeed

SMALL = ("program", "--layers", "ReLU;Linear", "--layer-sizes", "20;16;5", "--batch-size", 7)
TENSOR = "1.W=rows;1.b=columns;2.W=columns"


def lines(*arguments: object) -> list[str]:
    return [" ".join(line.split()) for line in succeed(*SMALL, *arguments).splitlines()]


def test_the_equations_of_a_rank_with_their_collectives():
    found = lines("--ranks", 2)
    assert "X N/2×20, T N/2×5" in found[0]
    assert "Z1 = X W1ᵀ + 1_(N/2) b1" in found
    assert "W1.delta' = 0.9·W1.delta - η·all_reduce(DW1)" in found
    assert any(line.startswith("DY = ") and line.endswith(" / 7") for line in found), "N is that of all ranks"
    assert found[-4:] == [
        "rank 0 of 2 has 4 of 7 examples; 1 message of 1,684 bytes per step", "", "message bytes",
        "all_reduce of Db2, DW2, Db1, DW1 1,684",
    ]  # fmt: skip


def test_another_rank_has_fewer_rows():
    found = [json.loads(succeed(*SMALL, "--ranks", 2, "--rank", rank, "--json")) for rank in (0, 1)]
    assert [program["sizes"] for program in found] == [{"N/2": 4}, {"N/2": 3}]
    carried = [name for message in found[0]["messages"] for name in message["carries"]]
    assert len(carried) == sum(x["operation"].startswith("all_") for x in found[0]["values"])


def test_what_optimizers_remember_in_parts():
    found = lines("--ranks", 2, "--placements", "optimizer")
    assert "W1.delta' = 0.9·W1.delta - η·reduce_scatter_rows(DW1)" in found
    assert "W1' = all_gather_rows(take_rows(W1) + W1.delta')" in found
    assert "reduce_scatter_rows of DW1 1,280" in found
    assert "W1.delta 16/2×20, b1.delta 1×16/2" in found[0]


def test_layers_in_parts():
    found = lines("--ranks", 2, "--placements", TENSOR)
    assert "Y2 = all_reduce(Y1 W2ᵀ) + 1_N b2" in found
    assert "W1.delta 16/2×20" in found[0]  # like W1
    assert found[-1] == "all_reduce of Y1 W2ᵀ 140"


def test_as_recorded_and_latex():
    assert "DW1 = DZ1ᵀ X" in lines("--ranks", 2, "--as-recorded")
    assert r"\eta \cdot (\sum_r \mathsf{D}W_1)" in succeed(*SMALL, "--ranks", 2, "--latex", "-")
