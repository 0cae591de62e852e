"""Images, tokens and layers of layers are proved for all sizes, and wrong equations of them are not."""

from __future__ import annotations

import inspect
import sys

import pytest

from matgrad import layers, loss_functions, matrix_operations
from matgrad.inspection.verdicts import Check
from matgrad.judges.blocks import COMPOSITES, DECLARED, MADE
from matgrad.judges.suite import ALL_SIZES, NUMBERS, SYMPY, cases

NAMES = tuple(DECLARED | COMPOSITES)


def verdicts(name: str, judge: str) -> list[Check]:
    return [check for case in cases((name,), judges=[judge]) for check in case.run()]


@pytest.mark.parametrize("name", NAMES)
def test_everything_is_proved_for_all_sizes(name: str):
    checks = verdicts(name, ALL_SIZES)
    assert checks
    assert [check.message for check in checks if not check.ok or check.note] == []


@pytest.mark.parametrize("judge", [pytest.param(SYMPY, marks=pytest.mark.slow), NUMBERS])
@pytest.mark.parametrize("name", MADE)
def test_layers_as_they_are_made_are_right(name: str, judge: str):
    checks = verdicts(name, judge)
    assert checks
    assert [check.message for check in checks if not check.ok] == []


# class, what, by what, and which subject finds it
MUTANTS = [
    ("WindowsLayer", "DV = stack(DY, P)", "DV = -stack(DY, P)", "Conv"),
    ("WindowsLayer", "DX = unstack(DU, P) @ E", "DX = unstack(DU, P) @ E / P", "Conv"),
    ("WindowsLayer", "DX = unstack(DU, P) @ E", "DX = unstack(DU, P) @ hadamard(E, E)", "Conv"),
    ("WindowsLayer", "DU = self.DF(V, DV)", "DU = self.DF(V, DV + V)", "Conv"),
    ("WindowsLayer", "U = stack(X @ E.T, P)", "U = 2 * stack(X @ E.T, P)", "Conv"),
    ("MeanLayer", "DX = column_repeat(DY / D, D)", "DX = column_repeat(DY, D)", "AvgPool"),
    ("MeanLayer", "Y = rows_mean(X)", "Y = rows_sum(X)", "AvgPool"),
    ("MaxLayer", "M = step(X - column_repeat(Y, D))", "M = step(X)", "MaxPool"),
    ("MaxLayer", "hadamard(DY, reciprocal(rows_sum(M)))", "DY", "MaxPool"),
    ("EachLayer", "DX = unstack(DU, P)", "DX = unstack(DU, P) / P", "Each"),
    ("EachLayer", "DV = stack(DY, P)", "DV = stack(DY, P) / P", "Each"),
    ("ResidualLayer", "DX = DY + self.DF(Z, DY)", "DX = self.DF(Z, DY)", "Residual"),
    ("ResidualLayer", "DX = DY + self.DF(Z, DY)", "DX = DY + self.DF(Z, DY + Z)", "Residual"),
    ("ResidualLayer", "Y = X + Z", "Y = X - Z", "Residual"),
    ("GatedLayer", "F.backpropagate(A, hadamard(DY, B))", "F.backpropagate(A, hadamard(DY, A))", "Gated"),
    ("GatedLayer", "DX = F.DX + G.DX", "DX = F.DX", "Gated"),
    ("EmbeddingLayer", "DW = E.T @ stack(DY, L)", "DW = E.T @ stack(DY, L) / L", "Embedding"),
    ("EmbeddingLayer", "DX = zeros(N, L, like=DY)", "DX = X", "Embedding"),
    ("PositionsLayer", "Db = columns_sum(DY)", "Db = columns_sum(DY) / DY.shape[0]", "Positions"),
    ("SinusoidalLayer", "DX = DY", "DX = 2 * DY", "Positions"),
    ("RotaryLayer", "hadamard(row_repeat(s, N), DY) @ E", "hadamard(row_repeat(s, N), DY @ E)", "Rotary"),
    ("RotaryLayer", "hadamard(row_repeat(s, N), DY) @ E", "hadamard(row_repeat(s, N), DY) @ E.T", "Rotary"),
    ("AttentionLayer", "DZ = stack(DY @ E_Y, HL)", "DZ = stack(DY @ E_Y, HL) / c", "Attention"),
    ("AttentionLayer", "DV = Diag(A, L).T @ DZ", "DV = Diag(A, L) @ DZ", "Attention"),
    ("AttentionLayer", "DA = diag_product(DZ, V.T, L)", "DA = diag_product(V, DZ.T, L)", "Attention"),
    ("AttentionLayer", "column_repeat(rows_sum(hadamard(DA, A)), L)", "column_repeat(rows_sum(DA), L)", "Attention"),
    ("AttentionLayer", "DQ = Diag(DS, L) @ K / c", "DQ = Diag(DS, L) @ K", "Attention"),
    ("AttentionLayer", "DQ = Diag(DS, L) @ K / c", "DQ = Diag(DS, L).T @ K / c", "Attention"),
    ("AttentionLayer", "DK = Diag(DS, L).T @ Q / c", "DK = Diag(DS, L).T @ K / c", "Attention"),
    ("AttentionLayer", "+ unstack(DV, HL) @ E_V", "- unstack(DV, HL) @ E_V", "Attention"),
    ("AttentionLayer", "A = stable_softmax(S)", "A = stable_softmax(S + S)", "Attention"),
    ("AttentionLayer", "unstack(DQ, HL) @ E_Q", "unstack(DQ, HL) @ E_K", "Attention"),
    ("TokenCrossEntropyLoss", "E, s) / L", "E, s)", "TokenCrossEntropy"),
    ("TokenCrossEntropyLoss", "E) / L, L)", "E), L)", "TokenCrossEntropy"),
    ("TokenCrossEntropyLoss", "return unstack(", "return -unstack(", "TokenCrossEntropy"),
    ("TokenCrossEntropyLoss", "@ identity(V, like=Y)", "@ (2 * identity(V, like=Y))", "TokenCrossEntropy"),
    ("TokenCrossEntropyLoss", "column_repeat(s, L)", "column_repeat(s, L) / L", "TokenCrossEntropy"),
    # with the same gradients: only a definition tells
    ("MeanLayer", "Y = rows_mean(X)", "Y = rows_mean(X) + 1", "AvgPool"),
    ("ResidualLayer", "Y = X + Z", "Y = X + Z + 1", "Residual"),
    ("EachLayer", "        Y = unstack(V, P)", "        Y = unstack(V, P) + 1", "Each"),
    ("GatedLayer", "Y = hadamard(A, B)", "Y = hadamard(A, B) + 1", "Gated"),
    ("PositionsLayer", "Y = X + row_repeat(b, N)", "Y = X + row_repeat(b, N) + 1", "Positions"),
    ("RotaryLayer", "Y = hadamard(", "Y = 1 + hadamard(", "Rotary"),
]  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m[0]}: {m[2]}")
def test_wrong_equations_are_not_proved(mutant: tuple[str, str, str, str], monkeypatch: pytest.MonkeyPatch):
    name, old, new, subject = mutant
    owner = layers if hasattr(layers, name) else loss_functions
    cls = getattr(owner, name)
    source, module = inspect.getsource(cls), sys.modules[cls.__module__]
    assert source.count(old) == 1, source.count(old)
    wrong = {**vars(matrix_operations), **vars(module)}
    exec(compile(source.replace(old, new), module.__file__ or "", "exec"), wrong)
    monkeypatch.setattr(owner, name, wrong[name])
    if subject in loss_functions.LOSSES:
        monkeypatch.setitem(loss_functions.LOSSES, subject, wrong[name])
    assert not all(check.ok for check in verdicts(subject, ALL_SIZES))
