"""Texts that a model writes, character by character; see `matgrad.datasets.Text`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from matgrad.datasets.text_file import encoded
from matgrad.engines.fallback import evaluation_of
from matgrad.foundation.numbers import check_number, check_size, generator
from matgrad.softmax_functions import stable_softmax

if TYPE_CHECKING:
    from matgrad.multilayer_perceptron import MultilayerPerceptron


def sample(
    M: MultilayerPerceptron, prompt: str = "\n", length: int = 200, *, temperature: float = 1.0, seed: int | None = None
) -> str:
    """`length` characters that M continues the prompt with, drawn from softmax(Y / temperature) one by one.

    Temperature 0 takes the most probable character. M sees as many characters as it has inputs, and must have been
    trained on a text: its `information` has the vocabulary, as 'class_names'.
    """
    names = M.information.get("class_names") or ()
    L, K = M.layers[0].input_size, M.layers[-1].output_size
    if M.layers[0].input != "labels" or not names or len(names) * L != K or {*map(len, names)} != {1}:
        raise ValueError("sample: expected a model that was trained on a text, as by M.fit(mg.load_text(FILE))")
    check_size("sample: length", length, least=0)
    check_number("sample: temperature", temperature)
    if not prompt:
        raise ValueError("sample: expected a prompt of at least one character, such as '\\n'")
    check_causal(M)
    rng = generator() if seed is None else np.random.default_rng(seed)
    feedforward, state, start = evaluation_of(M), M.state(), len(prompt)
    labels = [*encoded(prompt, "".join(names))]
    for _ in range(length):
        seen = labels[-L:]
        X = M.backend.from_numpy(np.array([seen + (L - len(seen)) * [0]], M.dtype), M.device)
        Y = M.backend.to_numpy(feedforward(state, X)["Y"]).astype(np.float64).reshape(L, -1)[len(seen) - 1]
        labels.append(_drawn(Y, temperature, rng))
    return "".join(names[i] for i in labels[start:])


def _drawn(Y: np.ndarray, temperature: float, rng: np.random.Generator) -> int:
    """A label with the probabilities softmax(Y / temperature)."""
    if not temperature:
        return int(Y.argmax())
    P = stable_softmax(((Y - Y.max()) / temperature)[None])[0]
    return int(np.searchsorted(np.cumsum(P), rng.random() * P.sum(), side="right").clip(max=len(P) - 1))


def check_causal(M: MultilayerPerceptron) -> None:
    """Raise ValueError if the output for a token depends on later tokens, which it is to predict."""
    L, V = M.layers[0].input_size, getattr(M.layers[0], "V", 2)
    X = np.zeros((2, L))
    X[1, L // 2 :] = 1 % V
    Y, Z = M.predict(X, 1).reshape(2, L, -1)[:, : L // 2]
    if not np.allclose(Y, Z, rtol=1e-4, atol=1e-5, equal_nan=True):
        raise ValueError(
            "the model sees the characters that it is to predict: expected layers that are causal, such as "
            "Transformer(2, heads=4), or for each token alone, such as Each(Linear(64))"
        )
