"""Histories and runs of training as HTML: a table of the epochs, and a plot of loss and accuracy as SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING

import numpy as np

from matgrad.callbacks.report import shown_values
from matgrad.callbacks.statistics import MEASURES, measure_and_part
from matgrad.explanation.html import LINE, MUTED, PLAIN, muted, table_html
from matgrad.foundation.writing import as_html

if TYPE_CHECKING:
    from matgrad.training import Training

FIRST, LAST = 4, 6  # epochs in the table of a long history
MOST_POINTS, MOST_DOTS = 300, 30  # of a curve; those of a short one tell their values
COLORS = {"training": "#3b82f6", "validation": "#f97316", "test": "#10b981"}
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 330, 190, 46, 26, 30  # of a plot, and the margins of its area


def history_html(history: Mapping[str, Sequence]) -> str:
    """The values of the epochs as a table beside plots of the loss and the accuracy or error."""
    plots = "".join(_plot(measure, _curves(history, measure)) for measure in MEASURES)
    style = "line-height:1.4;display:flex;flex-wrap:wrap;gap:8px 28px;align-items:flex-start"
    return f'<div style="{style}"><div style="overflow-x:auto">{_table(history)}</div><div>{plots}</div></div>'


def run_html(run: Training) -> str:
    """The history of a run so far, under a bar that shows its progress while it runs."""
    if run.epoch >= run.epochs or run.is_stopped:
        return history_html(run.history)
    style = "height:8px;border-radius:4px;background:"
    done = f'<div style="width:{100 * run.progress:.1f}%;{style}{COLORS["training"]}"></div>'
    place = "display:inline-block;vertical-align:middle;width:220px;margin-right:10px;"
    bar = f'<div style="{place}{style}rgba(128,128,128,.3)">{done}</div>'
    label = f'<span style="{MUTED}">epoch {run.epoch + 1} of {run.epochs}</span>'
    return f'<div style="margin:4px 0">{bar}{label}</div>{history_html(run.history)}'


# -- the table ------------------------------------------------------------------------------------


def _table(history: Mapping[str, Sequence]) -> str:
    """A row per epoch; of a long history the first and the last. A value that some epochs lack has no column."""
    count = len(history.get("epoch", ()))
    complete = {name: values for name, values in history.items() if len(values) == count}
    rows = [shown_values({name: values[i] for name, values in complete.items()}) for i in range(count)]
    if not rows:
        return ""
    style = f"{PLAIN};padding:2px 0 2px 16px;text-align:right;white-space:nowrap"
    lines = [[as_html(x) for x in row.values()] for row in rows]
    if count > FIRST + LAST:
        lines[FIRST:-LAST] = [[muted(f"… {count - FIRST - LAST} more epochs …")]]
    top = f"{style};border-bottom:{LINE};{MUTED};font-weight:normal"
    return table_html([as_html(x) for x in rows[0]], lines, [style] * len(rows[0]), top)


# -- the plots ------------------------------------------------------------------------------------

LARGEST = 1e300  # larger numbers are not drawn
Curve = list[tuple[int, float]]  # epochs and finite values


def _curves(history: Mapping[str, Sequence], measure: str) -> dict[str, Curve]:
    """The values of a measure by the part of the data; without those that are not finite."""
    epochs = history.get("epoch", ())
    curves: dict[str, Curve] = {}
    for name, values in history.items():
        found, part = measure_and_part(name)
        if found != measure or not part or len(values) != len(epochs):
            continue
        curve = [(int(i), float(x)) for i, x in zip(epochs, values, strict=True) if isinstance(x, Real)]
        curve = [(i, x) for i, x in curve if abs(x) < LARGEST]
        if curve:  # at most `MOST_POINTS` points, the first and the last among them
            places = np.linspace(0, len(curve) - 1, min(len(curve), MOST_POINTS)).round().astype(int)
            curves[part] = [curve[i] for i in places]
    return curves


def _plot(measure: str, curves: Mapping[str, Curve]) -> str:
    """The curves of one measure over the epochs."""
    if not curves:
        return ""
    points = [point for curve in curves.values() for point in curve]
    last = max(epoch for epoch, _ in points)
    x_ticks = [x for x in _ticks(1, last, 5) if x == int(x)]
    y_ticks = _ticks(min(y for _, y in points), max(y for _, y in points), 4)
    low, high = y_ticks[0], y_ticks[-1]

    def x(epoch: float) -> float:
        return LEFT + (WIDTH - LEFT - 10) * ((epoch - 1) / (last - 1) if last > 1 else 0.5)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - low) / (high - low)

    right, bottom = WIDTH - 10, HEIGHT - BOTTOM
    parts = []
    for tick in y_ticks:
        ends = f'x1="{LEFT:.1f}" y1="{y(tick):.1f}" x2="{right:.1f}" y2="{y(tick):.1f}"'
        parts.append(f'<line {ends} stroke="currentColor" stroke-opacity="{0.5 if tick == low else 0.15}"/>')
    parts += [_text(LEFT - 6, y(tick) + 3.5, f"{tick:g}", "end") for tick in y_ticks]
    parts += [_text(x(tick), bottom + 15, f"{tick:g}", "middle") for tick in x_ticks if 1 <= tick <= last]
    parts.append(_text((LEFT + right) / 2, HEIGHT - 2, "epoch", "middle", 0.65))
    parts.append(_text(LEFT, 12, measure, "start", 1, "bold"))
    for k, (part, curve) in enumerate(curves.items()):
        place = right - 78 * (len(curves) - k) + 78 * 0.2
        parts.append(f'<circle cx="{place:.1f}" cy="8.5" r="4" fill="{COLORS[part]}"/>')
        parts.append(_text(place + 8, 12, part, "start"))
        places = [(x(i), y(value)) for i, value in curve]
        line = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
        stroke = f'fill="none" stroke="{COLORS[part]}" stroke-width="2" stroke-linejoin="round"'
        parts.append(f'<polyline points="{line}" {stroke}/>')
        for (a, b), (i, value) in zip(places, curve if len(curve) <= MOST_DOTS else [], strict=False):
            title = f"<title>epoch {i}: {value:.4g}</title>"
            parts.append(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.6" fill="{COLORS[part]}">{title}</circle>')
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
    style = "max-width:100%;height:auto;margin:4px 20px 4px 0;background:none;font:11px sans-serif"
    label = f'role="img" aria-label="{measure} by epoch"'
    return f'<svg {label} {size} style="{style}" fill="currentColor">{"".join(parts)}</svg>'


def _text(x: float, y: float, text: str, anchor: str, opacity: float = 0.8, weight: str = "normal") -> str:
    style = f'text-anchor="{anchor}" fill-opacity="{opacity}" font-weight="{weight}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{as_html(text)}</text>'


def _ticks(low: float, high: float, count: int) -> list[float]:
    """About `count` equidistant round numbers; the first is at most `low`, and the last at least `high`."""
    least = 1e-9 * max(abs(low), abs(high)) or 1.0  # smaller distances are rounding errors
    rough = max(high - low, least, 1e-300) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{k * step:.12g}") for k in range(first, max(last, first + 1) + 1)]
