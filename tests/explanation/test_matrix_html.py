"""Matrices as HTML: the right numbers and colors, in full or cut, dense or sparse, on every backend."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from html_support import formulas, numbers, parsed, rows, text
from PIL import Image

import matgrad as mg
from matgrad.explanation.html import matrix_html, picture_html

RNG = np.random.default_rng(3)
A = RNG.normal(size=(5, 7))
LARGE = RNG.normal(size=(40, 30)) * (RNG.random((40, 30)) < 0.5)


def cells(html: str) -> list[list[str]]:
    """The cells of a matrix without the indices of rows and columns."""
    (table,) = parsed(html).iter("table")
    return [row[1:] for row in rows(table)[1:]]


def test_a_small_matrix_is_shown_in_full():
    html = matrix_html(A, r"\mathsf{D}W")
    found = np.array([numbers(row) for row in cells(html)])
    np.testing.assert_allclose(found, A, rtol=0, atol=0.0051)
    assert formulas(parsed(html)) == ["DW"]
    assert "5×7" in text(parsed(html))


def test_a_large_matrix_is_cut():
    html = matrix_html(LARGE)
    (table,) = parsed(html).iter("table")
    (_, *head), *body = rows(table)
    columns, lines = [*range(6), None, 27, 28, 29], [*range(5), None, 38, 39]
    assert head == ["…" if j is None else str(j + 1) for j in columns]
    assert [row[0] for row in body] == ["…" if i is None else str(i + 1) for i in lines]
    for i, (_, *row) in zip(lines, body, strict=True):
        for j, cell in zip(columns, row, strict=True):
            if i is None or j is None:
                assert cell == "…"
            else:
                assert float(cell) == pytest.approx(LARGE[i, j], rel=0.006, abs=1e-12)


def sparse(shape: tuple[int, int], nnz: int) -> mg.SparseMatrix:
    support = mg.Support.random(*shape, nnz, np.random.default_rng(1))
    return mg.SparseMatrix(support, RNG.normal(size=(1, nnz)))


def test_a_sparse_matrix_has_dots_where_it_stores_nothing():
    W = sparse((4, 6), 9)
    dense, stored = W.to_dense(), np.zeros((4, 6), bool)
    stored[W.support.row_indices(), W.support.columns] = True
    for i, row in enumerate(cells(W._repr_html_())):
        for j, cell in enumerate(row):
            assert (cell != "·") == stored[i, j]
            assert cell == "·" or float(cell) == pytest.approx(dense[i, j], abs=0.0051)


def test_a_large_sparse_matrix_is_not_made_dense():
    W = sparse((1_000_000, 2_000_000), 50)
    for show in (matrix_html, picture_html):
        assert "50of2000000000000elementsarestored" in text(parsed(show(W)))


def pixels(html: str) -> np.ndarray:
    (image,) = parsed(html).iter("img")
    content = base64.b64decode(image.get("src").partition("base64,")[2])
    return np.asarray(Image.open(io.BytesIO(content))).astype(int)


def test_a_picture_has_a_point_for_every_element():
    shown = pixels(picture_html(LARGE))
    assert shown.shape == (40, 30, 4)
    np.testing.assert_allclose(shown[..., 3], 255 * np.abs(LARGE) / np.abs(LARGE).max(), atol=0.51)
    assert ((shown[..., 0] > shown[..., 2]) == (LARGE > 0)).all()  # orange is positive


@pytest.mark.parametrize(
    ("A", "expected"),
    [
        (np.array([[1, -2], [0, 30]]), [["1", "-2"], ["0", "30"]]),
        (np.array([[True, False]]), [["1", "0"]]),
        (np.array([[np.nan, np.inf], [-np.inf, 2.5]]), [["nan", "inf"], ["-inf", "2.50"]]),
        (np.array([[1e-9, 2.0]]), [["1e-09", "2"]]),
        (np.array([[123456.7, 1.5]]), [["123457", "2"]]),
        (np.array([[-0.0, 2.5]]), [["0", "2.50"]]),
        (np.zeros((0, 3)), []),
        (np.zeros((2, 2)), [["0", "0"], ["0", "0"]]),
    ],
)
def test_the_numbers_of_odd_matrices(A, expected):
    assert cells(matrix_html(A)) == expected


def test_a_matrix_of_another_backend(backend):
    X = backend.matrix(A)
    assert matrix_html(X, "X") == matrix_html(A, "X")
