"""The picture of the architecture, docs/architecture.svg: boxes and arrows that are legible on light and dark pages.

python docs/site/picture.py
"""

from __future__ import annotations

from html import escape
from pathlib import Path

TARGET = Path(__file__).parents[1] / "architecture.svg"
BLUE, GREEN, ORANGE, PURPLE, GREY = "#14506b", "#1f6b46", "#9a4a12", "#5b3f8c", "#4a5563"

# x, y, width, height, colour, title, lines below it
BOXES = [
    (20, 20, 600, 82, BLUE, "Equations", "layers · activation functions · losses · optimizers", "written once"),
    (20, 152, 600, 62, BLUE, "Table of matrix operations", "hadamard, row_repeat …: found by the type of the matrix"),
    (20, 264, 110, 62, GREEN, "NumPy", "and sparse"),
    (140, 264, 110, 62, GREEN, "PyTorch", "and sparse"),
    (260, 264, 110, 62, ORANGE, "Recorder", "writes down"),
    (380, 264, 110, 62, GREEN, "JAX", "arrays"),
    (500, 264, 120, 62, GREEN, "TensorFlow", "tensors"),
    (140, 376, 230, 62, ORANGE, "Program", "a list of operations, fused"),
    (20, 488, 110, 62, PURPLE, "eager", "one by one"),
    (140, 488, 110, 62, PURPLE, "program", "kernel calls"),
    (260, 488, 110, 62, PURPLE, "native", "the C++ core"),
    (380, 488, 110, 62, PURPLE, "jit", "by JAX"),
    (500, 488, 120, 62, PURPLE, "xla", "by TensorFlow"),
    (20, 600, 600, 62, GREY, "Training", "one loop, with callbacks: early stopping, checkpoints, topology, logs"),
    (680, 20, 260, 82, GREEN, "Verifier", "the same code on SymPy matrices,", "against SymPy's derivatives"),
    (680, 152, 260, 62, ORANGE, "Explainer", "every value of a batch, step by step"),
    (680, 264, 260, 62, BLUE, "Typesetting", "LaTeX and MathML from the source"),
    (680, 376, 260, 62, GREY, "Exchange", "PyTorch, ONNX, Keras, scikit-learn"),
    (680, 488, 260, 62, GREY, "Commands and Python", "matgrad train, M.fit, notebooks"),
    (680, 600, 260, 62, GREY, "Files", "models, checkpoints, records of runs"),
]  # fmt: skip

# from, to, and a word beside the arrow
ARROWS = [
    ((320, 102), (320, 152), "are written in"),
    *(((x, 214), (x, 264), "") for x in (75, 195, 315, 435, 560)),
    *(((x, 326), (x, 488), "") for x in (75, 435)),
    ((560, 326), (560, 488), "run by engines"),
    ((315, 326), (315, 376), ""),
    ((195, 438), (195, 488), ""),
    ((315, 438), (315, 488), ""),
    *(((x, 550), (x, 600), "") for x in (75, 195, 315, 435, 560)),
    ((620, 48), (680, 48), ""),
    ((620, 74), (680, 170), ""),
    ((620, 90), (680, 282), ""),
    ((680, 530), (620, 615), ""),
    ((620, 641), (680, 641), ""),
]


def box(x: int, y: int, width: int, height: int, colour: str, title: str, *lines: str) -> str:
    """A box with centred text."""
    middle, top = x + width / 2, y + height / 2 - 9 * len(lines) + 5
    texts = [f'<text class="title" x="{middle}" y="{top}">{escape(title)}</text>']
    texts += [f'<text x="{middle}" y="{top + 19 * i}">{escape(line)}</text>' for i, line in enumerate(lines, 1)]
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="7" fill="{colour}"/>' + "".join(texts)


def arrow(start: tuple[int, int], end: tuple[int, int], word: str) -> str:
    """An arrow, with a word to its right."""
    (a, b), (c, d) = start, end
    line = f'<line x1="{a}" y1="{b}" x2="{c}" y2="{d}" marker-end="url(#head)"/>'
    return line + (f'<text class="word" x="{a + 10}" y="{(b + d) / 2 + 4}">{escape(word)}</text>' if word else "")


def picture() -> str:
    """The SVG file."""
    style = (
        "text{font:13px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;fill:#fff;text-anchor:middle}"
        ".title{font-size:15px;font-weight:600}.word{fill:#7b8794;text-anchor:start}"
        "line{stroke:#7b8794;stroke-width:1.6}"
    )
    head = (
        '<marker id="head" markerWidth="9" markerHeight="8" refX="8" refY="4" orient="auto">'
        '<path d="M0 0L9 4L0 8z" fill="#7b8794"/></marker>'
    )
    parts = [*(arrow(*row) for row in ARROWS), *(box(*row) for row in BOXES)]
    return "\n".join(
        [
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 682" role="img">',
            "<title>From equations to training: the parts of matgrad</title>",
            f"<style>{style}</style><defs>{head}</defs>",
            *parts,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    TARGET.write_text(picture())
