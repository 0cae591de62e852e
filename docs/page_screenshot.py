"""Save the page of `mg.explain` after some steps, with a highlighted entry, as PNG: a picture of the README.

python docs/page_screenshot.py docs/explain.png
"""

import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright

import matgrad as mg

STEPS, EQUATION, CELL = 30, "DW2", (95, 70)  # the cell in pixels of the first matrix


def save_page(path: Path) -> None:
    """An explanation of a small network on six random examples."""
    mg.manual_seed(1)
    rng = np.random.default_rng(1)
    M = mg.create_model("ReLU;Softmax", "4;6;3")
    X, T = rng.normal(size=(6, 4)), mg.one_hot(rng.integers(0, 3, 6), 3)
    mg.explain(M, X, T, verify=True).save(path)


def photograph(page_file: Path, target: str) -> None:
    """Take steps, show the equation, and point at an entry."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 820}, color_scheme="light")
        page.goto(page_file.as_uri())
        page.evaluate(f"matgrad.takeSteps({STEPS})")
        page.evaluate(f"matgrad.go(matgrad.data.steps.findIndex(x => x.name === '{EQUATION}'))")
        box = page.locator(".window canvas").first.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + CELL[0], box["y"] + CELL[1])
        page.wait_for_timeout(300)  # milliseconds, until dots have changed their colour
        page.screenshot(path=target)
        browser.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "explanation.html"
        save_page(file)
        photograph(file, sys.argv[1])
