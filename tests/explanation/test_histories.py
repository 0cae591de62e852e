"""Histories of training: dictionaries as before, and in a notebook a table and a plot, live while training goes on."""

from __future__ import annotations

import copy
import json
import pickle
import sys
from types import ModuleType, SimpleNamespace
from xml.etree.ElementTree import Element

import numpy as np
import pytest
from html_support import parsed, rows, text

import matgrad as mg
from matgrad.callbacks import Callback, LiveTable, Report, default_report
from matgrad.training import History

N, D, K = 40, 5, 3


def trained(epochs: int = 3, **options) -> History:
    rng = np.random.default_rng(2)
    mg.manual_seed(1)
    M = mg.MultilayerPerceptron([mg.ActivationLayer(D, 8, "ReLU"), mg.LinearLayer(8, K)])
    return M.fit(rng.normal(size=(N, D)), rng.integers(0, K, N), epochs=epochs, validation=0.2, seed=1, **options)


def plots(html: str) -> dict[str, Element]:
    found = parsed(html).iter("svg")
    return {svg.get("aria-label").removesuffix(" by epoch"): svg for svg in found}


# -- the dictionary -----------------------------------------------------------------------------------


def test_a_history_is_a_dictionary_of_lists():
    history = trained()
    names = ["epoch", "learning_rate", "seconds", "loss", "accuracy", "validation_loss", "validation_accuracy"]
    assert [*history] == names
    assert history == dict(history)
    assert repr(history) == repr(dict(history))
    assert json.loads(json.dumps(history)) == history
    for other in (copy.deepcopy(history), pickle.loads(pickle.dumps(history))):
        assert other == history
        assert type(other) is History


# -- table and plot -----------------------------------------------------------------------------------


def test_the_table_has_the_values_of_every_epoch():
    history = trained()
    head, *lines = rows(next(parsed(history._repr_html_()).iter("table")))
    assert head == ["epoch", "lr", "loss", "train acc", "val loss", "val acc", "train seconds"]
    for i, line in enumerate(lines):
        names = ["epoch", "learning_rate", "loss", "accuracy", "validation_loss", "validation_accuracy", "seconds"]
        assert [float(x) for x in line] == pytest.approx([history[name][i] for name in names], abs=0.0051)
    assert len(lines) == 3


def test_the_curves_have_the_values_of_the_history():
    history = trained(epochs=5)
    found = plots(history._repr_html_())
    assert [*found] == ["loss", "accuracy"]
    for measure, svg in found.items():
        points = " ".join(line.get("points") for line in svg.iter("polyline")).split()
        names = (measure, f"validation_{measure}")
        values = np.array([history[name] for name in names]).ravel()
        places = np.array([float(point.partition(",")[2]) for point in points])
        labels = {float(t.get("y")) - 3.5: float(t.text) for t in svg.iter("text") if t.get("text-anchor") == "end"}
        slope, offset = np.polyfit([*labels], [*labels.values()], 1)  # the axis, as it is labelled
        np.testing.assert_allclose(slope * places + offset, values, atol=0.01 * np.ptp([*labels.values()]))
        assert [text(t) for t in svg.iter("text")][-2:] == ["training", "validation"]


@pytest.mark.parametrize(
    ("history", "measures"),
    [
        (History(), []),
        (History(epoch=[1], loss=[0.5]), ["loss"]),
        (History(epoch=[*range(1, 501)], loss=[1 / i for i in range(1, 501)]), ["loss"]),  # is cut
        (History(epoch=[1, 2], loss=[0.0, 0.0]), ["loss"]),
        (History(epoch=[1, 2, 3], loss=[0.5, np.inf, np.nan]), ["loss"]),
        (History(epoch=[1], loss=[np.nan]), []),
        (History(epoch=[1, 2], loss=[1e308, -1e308]), []),
        (History(epoch=[1, 2], loss=[0.0, 5e-324]), ["loss"]),
        (History(epoch=[1, 2], loss=[3.0, 2.0], test_loss=[3.0, 2.0], nnz=[{"1": 3}, {"1": 4}]), ["loss"]),
    ],
)
def test_odd_histories(history, measures):
    html = history._repr_html_()
    assert [*plots(html)] == measures
    assert len(html) < 20_000
    assert "nan" not in "".join(line.get("points") for line in parsed(html).iter("polyline"))


# -- live ---------------------------------------------------------------------------------------------


class Kernel:
    """A kernel that keeps what is displayed."""

    def __init__(self, monkeypatch) -> None:
        self.shown: list[str] = []
        shell = SimpleNamespace(kernel=self)
        display = ModuleType("IPython.display")
        display.display = self.display
        IPython = ModuleType("IPython")
        IPython.get_ipython, IPython.display = lambda: shell, display
        monkeypatch.setitem(sys.modules, "IPython", IPython)
        monkeypatch.setitem(sys.modules, "IPython.display", display)

    def display(self, thing, display_id):
        assert display_id
        self.update(thing)
        return self

    def update(self, thing):
        self.shown.append(thing._repr_html_())


@pytest.fixture
def kernel(monkeypatch) -> Kernel:
    return Kernel(monkeypatch)


def test_a_verbose_run_in_a_kernel_is_shown_live(kernel, capsys, monkeypatch):
    monkeypatch.setattr(LiveTable, "_INTERVAL", 0.0)
    history = trained(verbose=True)
    assert len(kernel.shown) >= 5
    counts = [len([*parsed(html).iter("tr")]) for html in kernel.shown]
    assert counts == sorted(counts)  # a head and an epoch, two, three
    assert {*counts} >= {0, 2, 3, 4}
    assert "epoch1of3" in text(parsed(kernel.shown[0]))
    assert kernel.shown[-1] == history._repr_html_()
    assert capsys.readouterr().out == ""


def test_a_run_that_fails_shows_what_it_has(kernel):
    class Failing(Callback):
        def epoch(self, run) -> None:
            if run.epoch == 2:
                raise KeyError("no")

    with pytest.raises(KeyError):
        trained(verbose=True, callbacks=[Failing()])
    assert "epoch3of3" in text(parsed(kernel.shown[-1]))
    assert len([*parsed(kernel.shown[-1]).iter("tr")]) == 3


def test_elsewhere_a_report_is_printed(monkeypatch, capsys):
    IPython = ModuleType("IPython")
    IPython.get_ipython = lambda: None
    monkeypatch.setitem(sys.modules, "IPython", IPython)
    assert type(default_report()) is Report
    trained(verbose=True)
    assert len(capsys.readouterr().out.splitlines()) == 4
