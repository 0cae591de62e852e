"""Texts by character: windows, training through M.fit, sampling, resuming, sparse weights, and the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import matgrad as mg
from cli_support import run, succeed
from matgrad.layers.state import matrices_of

LINE = "the quick brown fox jumps over the lazy dog.\n"
GPT = "Embedding(16);Positions;Transformer(1, heads=2);Each(LayerNormalization;Linear)"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "fox.txt"
    path.write_text(40 * LINE)
    return path


def gpt(text: mg.datasets.Text, layers: str = GPT, **options) -> mg.MultilayerPerceptron:
    mg.manual_seed(0)
    return mg.create_model(text.layers(layers), [text.context], optimizers="Adam", **options)


def test_targets_are_the_characters_that_come_next(file: Path):
    text = mg.load_text(file, context=8)
    names = "".join(text.class_names)
    assert names == "".join(sorted(set(LINE)))
    whole = 36 * LINE
    for epoch in range(4):
        X, T = text(epoch)
        assert X.shape == T.shape == ((len(whole) - 8) // 8, 8)
        joined = "".join(names[i] for i in X.ravel())
        start = whole.index(joined)
        assert start < 8
        assert "".join(names[i] for i in T.ravel()) == whole[start + 1 :][: X.size]
    assert len({text(epoch)[0].tobytes() for epoch in range(4)}) == 4, "epochs have other windows"
    np.testing.assert_array_equal(text(0)[0], text.Xtrain)
    assert {*map(tuple, text.Xtest)}, "the end of the text is held out"


def test_a_text_of_two_files_and_a_given_vocabulary(file: Path):
    other = file.with_name("other.txt")
    other.write_text(5 * LINE)
    text = mg.datasets.text(file, context=8, test=other)
    assert text.labels.size == 40 * len(LINE)
    assert text.Xtest.size == 8 * ((5 * len(LINE) - 8) // 8)
    with pytest.raises(ValueError, match=r"fox.txt: found the character 't', expected one of the 3 of the vocabulary"):
        mg.datasets.text(file, context=8, vocabulary="abc")


@pytest.mark.parametrize(
    ("content", "context", "message"),
    [
        (b"abc\xff", 2, "expected a text in UTF-8, found byte 0xff"),
        (b"abcabc", 2, "found 5 characters to train|found 1 characters to test, expected at least 4"),
        (b"abcabc", 1, "context: expected at least 2 characters, found 1"),
        (b"abcabc", 0, "context must be a positive integer, found 0"),
    ],
)
def test_texts_that_cannot_be_used(content: bytes, context: int, message: str, tmp_path: Path):
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        mg.load_text(tmp_path / "a.txt", context=context)


def test_a_model_learns_a_text_and_continues_it(file: Path, tmp_path: Path):
    text = mg.load_text(file, context=16)
    M = gpt(text)
    history = M.fit(text, epochs=25, batch_size=8, learning_rate=0.01, seed=0)
    assert history["test_perplexity"][-1] < 1.5
    np.testing.assert_allclose(history["test_perplexity"], np.exp(history["test_loss"]))
    logits = torch.tensor(M.predict(text.Xtest)).reshape(-1, text.classes)
    expected = F.cross_entropy(logits, torch.tensor(text.Ttest.ravel()).long())
    np.testing.assert_allclose(history["test_loss"][-1], float(expected), rtol=1e-5)
    assert M.score(text.Xtest, text.Ttest) == float((logits.argmax(1).numpy() == text.Ttest.ravel()).mean())
    continued = M.sample("the quick brown ", 60, temperature=0)
    assert continued == (2 * LINE)[16:76]
    M.save(tmp_path / "model.npz")
    again = mg.load(tmp_path / "model.npz")
    assert again.sample("the quick brown ", 60, temperature=0) == continued
    draws = [model.sample("t", 20, temperature=9, seed=seed) for model, seed in ((M, 3), (again, 3), (M, 4))]
    assert draws[0] == draws[1] != draws[2]
    with pytest.raises(ValueError, match="found the character 'Q', expected one of the"):
        M.sample("Q")
    with pytest.raises(ValueError, match="expected a prompt of at least one character"):
        M.sample("")


def test_draws_have_the_probabilities_of_the_model(file: Path):
    text = mg.load_text(file, context=8)
    M = gpt(text)
    M.information = {"class_names": list(text.class_names)}
    X = np.full((1, 8), text.class_names.index("t"))
    logits = torch.tensor(M.predict(X).reshape(8, -1)[0]) / 0.7
    expected = torch.softmax(logits, 0).numpy()
    drawn = [M.sample("t", 1, temperature=0.7, seed=i) for i in range(400)]
    counts = np.array([drawn.count(name) for name in text.class_names])
    assert np.abs(counts / 400 - expected).max() < 5 * np.sqrt(expected.max() / 400)


@pytest.mark.parametrize("layers", ["Embedding(6);Attention(1, causal=False);Each(Linear)", "Embedding(8);Linear(9)"])
def test_a_model_that_sees_what_it_is_to_predict_is_refused(layers: str, file: Path):
    text = mg.load_text(file, context=8)
    layers = layers.replace("Embedding(4)", "Embedding(6)").replace(
        "Linear(9)", f"Sequence(Linear({8 * text.classes}))"
    )
    with pytest.raises(ValueError, match="the model sees the characters that it is to predict"):
        gpt(text, layers).fit(text, epochs=1)


def test_labels_are_checked_and_not_scaled(file: Path):
    text = mg.load_text(file, context=8)
    M = gpt(text)
    X, T = text.Xtrain, text.Ttrain
    with pytest.raises(ValueError, match=r"normalize: found 'unit', but Embedding\(16, vocabulary=29\).* takes labels"):
        M.fit(X, T, epochs=1, normalize="unit")
    with pytest.raises(ValueError, match="X: label 29 in row 0: expected a class from 0 to 28"):
        M.fit(X * 0 + 29, T, epochs=1)
    with pytest.raises(ValueError, match=r"T: label 29\.0 in row 0: expected a class from 0 to 28"):
        M.fit(X, T * 0 + 29, epochs=1)
    with pytest.raises(ValueError, match="expected a label for each of L tokens"):
        M.fit(X, T[:, :3].copy(), epochs=1, loss="TokenCrossEntropy")


@pytest.mark.parametrize("engine", ["numpy", "torch", "native"])
def test_engines_compute_the_equations(engine: str, file: Path):
    text = mg.load_text(file, context=8)
    states = []
    for compiled in (False, True):
        M = gpt(text).to(engine, dtype="float64")
        M.fit(text, epochs=2, batch_size=40, learning_rate=0.01, seed=0, compiled=compiled, statistics=False)
        states.append({name: M.backend.to_numpy(A) for name, A in matrices_of(M.state()).items()})
    for name, A in states[0].items():
        np.testing.assert_allclose(states[1][name], A, rtol=1e-9, atol=1e-9, err_msg=name)


def test_the_command_line_trains_resumes_measures_and_writes(file: Path, tmp_path: Path):
    options = ["--text", f"{file}, context=8", "--layers", GPT, "--batch-size", 40]
    whole, part = tmp_path / "whole.npz", tmp_path / "part.npz"
    said = succeed("train", *options, "--epochs", 3, "--save-weights", whole)
    assert "a vocabulary of 29 characters" in said
    assert "test perplexity" in said.splitlines()[-1]
    folder = tmp_path / "checkpoints"
    succeed("train", *options, "--epochs", 2, "--checkpoint", folder)
    succeed("train", "--resume", folder, "--text", f"{file}, context=8", "--epochs", 3, "--save-weights", part)
    first, second = np.load(whole), np.load(part)
    assert all(np.array_equal(first[name], second[name]) for name in first.files)
    said = succeed("evaluate", whole, "--text", file)
    assert "perplexity" in said
    written = succeed("sample", whole, "--prompt", "the ", "--length", 12, "--seed", 1)
    assert written == succeed("sample", whole, "--prompt", "the ", "--length", 12, "--seed", 1)
    assert written.startswith("the ")
    assert len(written.removesuffix("\n")) == 16
    assert "which `matgrad sample` writes with" in run("predict", whole, tmp_path / "y.csv", "--text", file).output
    assert "all 54 equations agree" in succeed("check", whole, "--batch-size", 2)


def test_sparse_weights_take_one_option(file: Path):
    options = ["--text", f"{file}, context=8", "--layers", GPT, "--batch-size", 40, "--epochs", 2]
    said = succeed("train", *options, "--densities", 0.3, "--sparse-training", "RigL(every=5)", "--statistics", "costs")
    assert "GFLOP" in said
    assert "explored" in said
