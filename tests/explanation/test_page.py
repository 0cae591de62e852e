"""The page of an explanation in a real browser: stepping, pointing, keys, themes, widths and accessibility."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe

import matgrad as mg
from matgrad.explanation.page import page as page_of
from matgrad.explanation.page import page_data
from matgrad.program.operations import OPERATIONS

FUSED = {"add_scaled", "gate", "product_sum", "transposed_sum", "sampled_sum"}  # are not in programs as recorded


def explained(layers="ReLU;Softmax", sizes="3;4;2", N=5, *, loss=None, **options) -> mg.Explanation:
    mg.manual_seed(1)
    M = mg.create_model(layers, sizes, **options)
    rng = np.random.default_rng(1)
    K = M.layers[-1].output_size
    X, T = rng.normal(size=(N, M.layers[0].input_size)), mg.one_hot(rng.integers(0, K, N), K)
    return mg.explain(M, X, T, loss=loss)


@pytest.fixture(scope="module")
def small() -> mg.Explanation:
    return explained()


def cell(page, matrix: int, i: int, j: int) -> tuple[float, float]:
    """The middle of a cell on the screen."""
    box = page.locator(".window canvas").nth(matrix).bounding_box()
    width, height, margin = page.evaluate("k => matgrad.cell(k)", matrix)
    return box["x"] + margin + (j + 0.5) * width, box["y"] + margin + (i + 0.5) * height


def test_steps_with_buttons_and_keys(open_page, small):
    page = open_page(small)
    names = [e.name for e in small]
    current = "() => matgrad.data.steps[matgrad.state.step].name"
    assert page.evaluate(current) == names[0] == "Z1"
    page.click("#next")
    page.keyboard.press("ArrowRight")
    assert page.evaluate(current) == names[2]
    page.keyboard.press("ArrowLeft")
    page.click("#previous")
    page.click("#previous")
    assert page.evaluate(current) == names[0]
    page.keyboard.press("End")
    assert page.evaluate(current) == names[-1]
    page.keyboard.press("Home")
    assert page.evaluate(current) == names[0]
    page.locator("#steps button").nth(4).click()
    assert page.evaluate(current) == names[4]
    assert page.locator("#steps [aria-current]").get_attribute("data-step") == "4"
    page.locator("#layers button").nth(0).click()
    assert page.evaluate("() => matgrad.data.steps[matgrad.state.step].layer") == "1"
    page.keyboard.press("Home")
    page.clock.install()
    page.keyboard.press("p")
    page.clock.run_for(5000)
    assert page.evaluate("() => matgrad.state.step") == 2


def test_shows_the_equation_with_its_source_and_verdict(open_page, small):
    page = open_page(small)
    page.go("DW1")
    e = small["DW1"]
    assert page.text("#equation") == "𝖣W1=𝖣Z1⊤·X"
    assert page.text("#source") == e.written.source.replace(" ", "")
    assert page.text("#location") == e.written.location
    assert e.verdict.summary in page.locator("#verdict").text_content()
    assert e.verdict.details[0] in page.locator("#verdict").text_content()
    assert page.locator("#equation .c0").first.text_content() == "𝖣"
    colored = [page.locator(f"figcaption .{c}").text_content() for c in ("c0", "c1", "c2")]
    assert colored == ["𝖣W1", "𝖣Z1⊤", "X"]
    assert page.locator(".matrix .size").all_text_contents()[0].startswith("4 × 3")


def test_functions_are_named_until_they_are_opened(open_page):
    page = open_page(explained("ReLU;Linear"))
    page.go("DY")
    assert page.text("#equation") == "𝖣Y=softmax(Y2)−TN"
    page.click("#open")
    assert page.text("#equation").startswith("U1=eY2−max(Y2)row")
    page.keyboard.press("o")
    assert page.text("#equation") == "𝖣Y=softmax(Y2)−TN"
    page.go("DW1")
    assert not page.locator("#open").is_visible()


def test_pointing_at_an_entry_marks_its_sources_and_writes_the_arithmetic(open_page, small):
    page = open_page(small)
    page.go("Z1")
    page.mouse.move(*cell(page, 0, 1, 2))
    marked = page.evaluate("() => matgrad.marked()")
    assert marked == [[[1, 2]], [[1, 0], [1, 1], [1, 2]], [[0, 2], [1, 2], [2, 2]], [[0, 2]]]  # of Z1, X, W1ᵀ and b1
    assert page.text("#arithmetic").startswith("z23=∑kx2kw3k+b3=")
    X, W, z = small.X, small.M.layers[0].W, small["Z1"].value[1, 2]
    numbers = [float(x.replace("−", "-")) for x in re.findall(r"−?\d+\.\d+", page.text(".whole"))]
    terms = np.ravel(np.column_stack([X[1], W[2]]))
    assert numbers == pytest.approx([*terms, z], abs=6e-4)
    page.mouse.move(2, 2)
    assert page.evaluate("() => matgrad.marked()")[0] == [[0, 0]]  # the entry that was chosen last
    page.mouse.move(*cell(page, 1, 3, 0))  # of an operand: marks the entries that depend on it
    assert page.text("#arithmetic") == f"x41={small.X[3, 0]:.3f}".replace("-", "−")
    assert page.evaluate("() => matgrad.marked()") == [[[3, 0], [3, 1], [3, 2], [3, 3]], [[3, 0]], [], []]
    page.go("DZ1")  # depends on Z1 by [Z1 ≥ 0] alone
    page.mouse.move(*cell(page, 2, 2, 1))
    assert page.evaluate("() => matgrad.marked()") == [[[2, 1]], [], [[2, 1]]]


def test_choosing_an_entry_by_keyboard(open_page, small):
    page = open_page(small)
    page.go("Y2")
    page.locator(".window").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("() => matgrad.marked()") == [[[1, 1]], [[1, 0], [1, 1]]]  # the softmax of a row
    lines = [page.text(f".line >> nth={k}") for k in range(3)]
    assert lines[0].startswith("m=maxkz2k=max(")
    assert lines[1].startswith("s=∑kez2k−m=")
    assert lines[2].startswith("y22=ez22−ms=")
    assert lines[2].endswith(f"={small['Y2'].value[1, 1]:.3f}")
    assert "Y2 row 2 column 2" in page.locator("#live").text_content()
    page.keyboard.press("End")
    page.keyboard.press("PageDown")
    assert page.evaluate("() => matgrad.marked()")[0] == [[4, 1]]


def test_sparse_matrices_have_holes(open_page):
    page = open_page(explained("ReLU;Linear", "4;5;3", densities="0.5"))
    support = page.evaluate("() => matgrad.data.supports['1.W.support']")
    page.go("Z1")
    i, j = 2, support["rows"][0]
    page.mouse.move(*cell(page, 0, i, j))
    columns = [c for r, c in zip(support["rows"], support["columns"], strict=True) if r == j]
    _, X, W, _ = page.evaluate("() => matgrad.marked()")
    assert X == [[i, c] for c in columns]
    assert W == [[c, j] for c in columns]  # shown transposed
    page.go("DW1")
    hole = next(c for c in range(4) if c not in columns)
    page.mouse.move(*cell(page, 0, j, hole))
    assert "notstored" in page.text("#arithmetic")


def test_optimizer_steps_lower_the_loss(open_page, small):
    page = open_page(small)
    loss = small["loss"].value
    assert float(page.text("#loss")) == pytest.approx(loss, abs=1e-3)
    page.click("#step")
    page.click("#ten")
    losses = page.evaluate("() => matgrad.state.losses")
    assert len(losses) == 12
    assert losses[0] == pytest.approx(loss)
    assert losses[-1] < losses[0]
    assert float(page.text("#loss")) == pytest.approx(losses[-1], abs=1e-3)
    assert len(page.locator("#curve polyline").get_attribute("points").split()) == 12
    page.locator("#rate").fill("-2")
    assert page.evaluate("() => matgrad.state.inputs.eta[0]") == pytest.approx(0.01)
    page.click("#reset")
    assert page.evaluate("() => matgrad.state.losses") == [pytest.approx(loss)]


def test_a_weight_can_be_dragged(open_page, small):
    """The loss and the gradients follow, as Python computes them for the changed weight."""
    page = open_page(small)
    page.go("Z1")
    assert not page.locator("#entry").is_visible()
    page.mouse.click(*cell(page, 2, 1, 2))  # of W1ᵀ
    page.locator("#entry").fill("0.9")
    M = small.M.clone()
    M.layers[0].W[2, 1] = float(page.locator("#entry").input_value())
    changed = mg.explain(M, small.X, small.T, loss=small.loss)
    assert page.evaluate("() => matgrad.state.losses") == [pytest.approx(changed["loss"].value, rel=1e-5)]
    found = page.evaluate("() => matgrad.values()")[[e.name for e in changed].index("DW1")]
    assert found == pytest.approx(changed["DW1"].value.ravel(), rel=1e-5)
    page.click("#reset")
    assert page.evaluate("() => matgrad.state.losses") == [pytest.approx(small["loss"].value)]


def test_inputs_that_are_images_are_drawn_as_images(open_page):
    mg.manual_seed(1)
    X = np.arange(12.0).reshape(2, 6)
    page = open_page(mg.explain(mg.create_model("Linear", "6;2"), X, [0, 1], shape=(3, 2)))
    assert page.locator(".matrix .size").all_text_contents()[1].startswith("2 × 6: images")
    shown = [[page.evaluate("([i, j]) => matgrad.text(1, i, j)", [i, j]) for j in range(2)] for i in (0, 1, 2, 4)]
    assert shown == [["0", "1"], ["2", "3"], ["4", "5"], ["6", "7"]]  # between two images there is a gap
    with pytest.raises(ValueError, match="images of 6 pixels"):
        mg.explain(mg.create_model("Linear", "6;2"), X, [0, 1], shape=(4, 2))


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_has_no_serious_accessibility_violation(open_page, scheme):
    page = open_page(explained("ReLU;BatchNormalization;Softmax", "20;4;2", densities="1;0.5"), color_scheme=scheme)
    for name in ("Z1", "DX2"):
        page.go(name)
        found = Axe().run(page.page, options={"resultTypes": ["violations"]}).response["violations"]
        serious = [f"{x['id']}: {x['nodes'][0]['html']}" for x in found if x["impact"] in ("serious", "critical")]
        assert serious == []
    brightness = (
        "() => getComputedStyle(document.body).backgroundColor.match(/\\d+/g).reduce((x, y) => x + Number(y), 0)"
    )
    assert (page.evaluate(brightness) > 400) == (scheme == "light")
    page.click("#theme")
    assert (page.evaluate(brightness) > 400) == (scheme == "dark")


@pytest.mark.parametrize("width", [360, pytest.param(1200, marks=pytest.mark.slow)])
def test_fits_the_width_of_the_window(open_page, width):
    page = open_page(explained("ReLU;Dropout(0.3);Softmax", "30;20;4"), viewport={"width": width, "height": 740})
    for name in ("Z1", "Y3", "DZ3", "W1'"):
        page.go(name)
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width
    page.locator("#next").click()  # is in reach


@pytest.fixture(scope="module")
def wide() -> mg.Explanation:
    return explained("ReLU;ReLU;Linear", "64;16;12;10", 6)


SIZES = [(1366, 768), (1280, 720), (1920, 1080), (390, 844)]
PICTURES = Path(__file__).parents[2] / "build" / "pages"


@pytest.mark.parametrize("size", SIZES)
def test_result_arithmetic_and_operands_are_seen_at_once(open_page, wide, size):
    """Each in the window and none covered, in light and dark, of which there is a picture in build/pages."""
    width, height = size
    scheme = "dark" if width in (1280, 390) else "light"
    page = open_page(wide, viewport={"width": width, "height": height}, color_scheme=scheme)
    hidden = """
        () => [...document.querySelectorAll(".window, .whole .result")].flatMap((box) => {
            const { left, top, right, bottom } = box.getBoundingClientRect();
            const points = [[left + 2, top + 2], [right - 2, bottom - 2]];
            const isSeen = ([x, y]) => box.contains(document.elementFromPoint(x, y)) || x > innerWidth;
            return points.every(isSeen) ? [] : [box.outerHTML.slice(0, 200)];
        })"""
    PICTURES.mkdir(parents=True, exist_ok=True)
    for step in ("Z1", "DY", "W1'"):
        page.go(step)
        page.locator("#stage").scroll_into_view_if_needed()
        page.locator("#stage").evaluate("x => x.scrollIntoView()")
        page.screenshot(path=PICTURES / f"{width}-{scheme}-{step.rstrip(chr(39))}.png")
        assert page.evaluate(hidden) == [], step


def test_presentation(open_page, wide):
    page = open_page(wide, viewport={"width": 1280, "height": 720})
    assert page.locator(".foot kbd", has_text="F").is_visible()
    before = page.locator("#equation").evaluate("x => parseFloat(getComputedStyle(x).fontSize)")
    page.keyboard.press("f")
    assert page.locator("#equation").evaluate("x => parseFloat(getComputedStyle(x).fontSize)") > before
    assert not page.locator("#steps").is_visible()
    page.keyboard.press("ArrowRight")
    assert page.text("#equation") == "Y1=relu(Z1)"
    page.keyboard.press("Escape")
    assert page.locator("#steps").is_visible()


def test_the_layout_is_steady(open_page, wide):
    """Pointing moves nothing, formulas fit, primes are close to their letters, and the current equation is in view."""
    page = open_page(wide, viewport={"width": 1300, "height": 1800})
    page.go("DY")
    before = page.locator(".window").nth(1).bounding_box()
    page.mouse.move(*cell(page, 1, 0, 0))
    assert page.text("#arithmetic").startswith("y1,1=")
    assert page.locator(".window").nth(1).bounding_box() == before
    page.set_viewport_size({"width": 1300, "height": 900})
    page.go("ℒ")
    assert page.locator("#own").evaluate("x => x.scrollWidth <= x.clientWidth")
    page.go("W1'")
    for prime in page.locator("#equation .prime").all():
        assert prime.evaluate("x => x.getBoundingClientRect().width / parseFloat(getComputedStyle(x).fontSize)") < 0.35
    assert page.locator("#equation mo:not(.prime)", has_text="′").count() == 0
    for key in ("End", "ArrowLeft", "Home"):
        page.keyboard.press(key)
        box = page.locator("#steps [aria-current]").bounding_box()
        assert 150 < box["y"] < box["y"] + box["height"] < 900


def test_shows_the_definition_and_a_note_if_there_are_any(open_page, small):
    data = page_data(small)
    data["steps"][0] |= {"definition": "X Wᵀ <b>", "note": "inherited"}
    page = open_page(SimpleNamespace(save=lambda path: path.write_text(page_of(data), encoding="utf-8")))
    assert page.locator("#definition").inner_text().split("\n\n") == ["Definition", "X Wᵀ <b>"]
    assert page.locator("#note").inner_text() == "inherited"
    page.click("#next")
    assert not page.locator("#definition").is_visible()
    assert page.locator("#note").inner_text() == ""


def test_small_numbers_do_not_read_as_0(open_page):
    mg.manual_seed(1)
    X = np.array([[3.25, -2e-8, 0.0], [0.004, 0.006, -1.0]])
    page = open_page(mg.explain(mg.create_model("Linear", "3;2"), X, np.zeros((2, 2)), loss="SquaredError"))
    page.go("Y1")
    shown = [page.evaluate("([i, j]) => matgrad.text(1, i, j)", [i, j]) for i in range(2) for j in range(3)]
    assert shown == ["3.25", "−2e−8", "0", "4e−3", "0.01", "−1.00"]


def test_data_cannot_end_the_script(small):
    hostile = "</script><script>alert(1)</script><!--"
    html = page_of({"title": hostile, "x": [hostile, np.inf, -np.inf, np.nan]})
    assert hostile not in html
    assert "&lt;/script&gt;" in html
    assert '"Infinity","-Infinity","NaN"' in html


def test_computes_every_operation_of_recorded_programs():
    html = page_of({"title": ""})
    recorded = {name for name, x in OPERATIONS.items() if x.kind not in ("source", "collective")} - FUSED
    assert {name for name in recorded if not re.search(rf"^  {name}: ", html, re.MULTILINE)} == set()


def test_wrong_is_red_in_the_header_and_in_the_list(open_page):
    M = mg.MultilayerPerceptron([mg.ActivationLayer(3, 4, "ReLU"), mg.LinearLayer(4, 2)])
    M.layers[1].__class__ = type("DoubledLayer", (mg.LinearLayer,), {"backpropagate": _doubled})
    page = open_page(mg.explain(M, np.eye(3), [0, 1, 0]))
    assert page.locator("#faults").inner_text() == "✗ layer 2 DoubledLayer.Db is wrong"
    page.click("#faults button")
    assert page.evaluate("() => matgrad.data.steps[matgrad.state.step].name") == "Db2"
    assert page.locator("#steps button.wrong").count() == page.locator(".dots .wrong").count() == 1
    assert page.locator("#layers li.wrong").get_attribute("data-layer") == "2"
    red = page.locator("#steps button.wrong").evaluate("x => getComputedStyle(x).color")
    assert re.findall(r"\d+", red)[0] == "179"
    assert re.search(r"row \d, column \d: found .*, central differences give", page.locator("#verdict").inner_text())


def _doubled(layer, Y, DY):
    X, W = layer.X, layer.W

    DW = mg.matrix_operations.product_on(W, DY.T, X)
    Db = 2 * mg.matrix_operations.columns_sum(DY)
    DX = DY @ W

    layer.DW, layer.Db, layer.DX = DW, Db, DX
