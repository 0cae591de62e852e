"""A GPT on a megabyte of text: its held-out loss against the same model of torch.nn, and at density 0.1.

The text is the language reference of Python, in pydoc, and the documentation of this project: paragraphs in a random
order, each once. Both models have the same start, batches, optimizer and rates.
"""

from __future__ import annotations

import math
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
import torch
from torch import nn

import matgrad as mg
from harness.reports import finish, parser
from harness.team import Record, say
from matgrad import datasets
from matgrad.callbacks import Accounting, RigL
from matgrad.foundation.machine import set_threads
from matgrad.foundation.writing import Table
from matgrad.layers.state import matrices_of
from matgrad.learning_rate import create_scheduler

CHARACTERS = 1_000_000
DOCUMENTATION = sorted(Path(__file__).parents[1].glob("docs/*.md"))


def text_of(context: int) -> datasets.Text:
    """The paragraphs of the documentation in a random order, each once, as a data set."""
    whole = "\n\n".join([*topics.values(), *(path.read_text() for path in DOCUMENTATION)])
    paragraphs = [*dict.fromkeys(x.strip() for x in whole.split("\n\n"))]
    order = np.random.default_rng(0).permutation(len(paragraphs))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "documentation.txt"
        path.write_text("\n\n".join(paragraphs[i] for i in order)[:CHARACTERS])
        return mg.load_text(path, context=context)


def gpt(text: datasets.Text, options: Namespace, **more: Any) -> mg.MultilayerPerceptron:
    """A GPT, always with the same start."""
    mg.manual_seed(options.seed)
    blocks = f"Transformer({options.blocks}, heads={options.heads})"
    layers = f"Embedding({options.size});Positions;{blocks};Each(LayerNormalization;Linear)"
    return mg.create_model(text.layers(layers), [text.context], optimizers="Adam", **more)


def ours(text: datasets.Text, options: Namespace, epochs: int, **more: Any) -> Record:
    """The held-out loss after each epoch, and what training took."""
    M = gpt(text, options, **more)
    callbacks = [RigL(every=options.every)] if "densities" in more else []
    history = M.fit(
        text,
        epochs=epochs,
        batch_size=options.batch_size,
        learning_rate=rate(options, epochs),
        per_step=True,
        seed=options.seed,
        callbacks=[*callbacks, Accounting(), _Told()],
    )
    return {
        **{x: sum(history.get(x, [0])) for x in ("seconds", "flops", "update_flops")},
        **{x: history[x] for x in ("test_loss", "test_perplexity")},
        **{"density": history["density"][-1], "epochs": epochs},
    }


class _Told(mg.Callback):
    """Says how a run goes."""

    place = 2

    def epoch(self, run: Any) -> None:
        say(f"epoch {run.epoch}: held-out loss {run.row['test_loss']:.4f}, {run.row['seconds']:.0f} s")


def rate(options: Namespace, epochs: int) -> Callable[[int], float]:
    """A cosine from the learning rate to a tenth of it, after 100 steps that warm up."""
    steps = epochs * options.steps_per_epoch
    return create_scheduler(f"WarmUp(100; Cosine({options.rate}; {steps - 100}; {options.rate / 10}))")


class Torch(nn.Module):
    """The same model of torch.nn, with the parameters of M."""

    def __init__(self, M: mg.MultilayerPerceptron, options: Namespace) -> None:
        super().__init__()
        first: Any = M.layers[0]
        d, V = options.size, first.V
        self.embedding, self.positions = nn.Embedding(V, d), nn.Parameter(torch.empty(first.L, d))
        settings: Any = {"dropout": 0.0, "activation": "gelu", "batch_first": True, "norm_first": True}
        block = nn.TransformerEncoderLayer(d, options.heads, 4 * d, **settings)
        self.blocks = nn.TransformerEncoder(block, options.blocks, enable_nested_tensor=False)
        self.norm, self.linear = nn.LayerNorm(d), nn.Linear(d, V)
        state = {name: torch.tensor(np.array(A)) for name, A in matrices_of(M.state()).items()}
        parts = {"1": (self.embedding,), "4.1": (self.norm,), "4.2": (self.linear,)}
        for i, x in enumerate(self.blocks.layers, start=1):
            attention, hidden = f"3.{2 * i - 1}", f"3.{2 * i}"
            parts |= {f"{attention}.1.1": (x.norm1,), f"{hidden}.1.1": (x.norm2,), f"{hidden}.1.2": (x.linear1,)}
            parts |= {f"{attention}.3.1": (x.self_attn.out_proj,), f"{hidden}.1.3": (x.linear2,)}
            with torch.no_grad():
                x.self_attn.in_proj_weight.copy_(state[f"{attention}.1.2.W"])
                x.self_attn.in_proj_bias.copy_(state[f"{attention}.1.2.b"][0])
        with torch.no_grad():
            self.positions.copy_(state["2.b"].reshape(self.positions.shape))
            for path, (module,) in parts.items():
                for theirs, names in (("weight", ("W", "gamma")), ("bias", ("b", "beta"))):
                    found = next((state[f"{path}.{x}"] for x in names if f"{path}.{x}" in state), None)
                    if found is not None:
                        getattr(module, theirs).copy_(found.reshape(getattr(module, theirs).shape))

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """The logits of the next tokens."""
        mask = nn.Transformer.generate_square_subsequent_mask(X.shape[1])
        return self.linear(self.norm(self.blocks(self.embedding(X) + self.positions, mask, is_causal=True)))


def theirs(text: datasets.Text, options: Namespace, epochs: int) -> Record:
    """The same with torch.nn, on the same batches."""
    model = Torch(gpt(text, options).to("numpy"), options)
    X, T = (torch.tensor(A.astype(np.int64)) for A in (text.Xtest, text.Ttest))
    start = held_out(model.eval(), X, T)
    optimizer, schedule, step = torch.optim.Adam(model.parameters()), rate(options, epochs), 0
    losses, seconds = [], 0.0
    for i in range(epochs):
        began = time.perf_counter()
        seed: Any = (options.seed, i) if i else options.seed
        model.train()
        for x, t in mg.DataLoader(*text(i), options.batch_size, shuffle=True, seed=seed):
            optimizer.param_groups[0]["lr"] = schedule(step)
            loss = nn.functional.cross_entropy(
                model(torch.tensor(x).long()).flatten(0, 1), torch.tensor(t).long().flatten()
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
        seconds += time.perf_counter() - began
        losses.append(held_out(model.eval(), X, T))
        say(f"torch.nn, epoch {i + 1}: held-out loss {losses[-1]:.4f}, {seconds:.0f} s in all")
    return {"test_loss": losses, "seconds": seconds, "start": start, "epochs": epochs}


@torch.no_grad()
def held_out(model: nn.Module, X: torch.Tensor, T: torch.Tensor) -> float:
    """The mean loss of the tokens."""
    parts = (range(i, min(i + 100, len(X))) for i in range(0, len(X), 100))
    total = sum(nn.functional.cross_entropy(model(X[p]).flatten(0, 1), T[p].flatten(), reduction="sum") for p in parts)
    return float(total) / T.numel()


def main() -> None:
    """Train the models that are asked for, and write the record."""
    found = parser(__doc__)
    found.add_argument("--size", type=int, default=64, help="features of a token")
    found.add_argument("--blocks", type=int, default=2)
    found.add_argument("--heads", type=int, default=4)
    found.add_argument("--context", type=int, default=64)
    found.add_argument("--batch-size", type=int, default=16)
    found.add_argument("--epochs", type=int, default=3)
    found.add_argument("--sparse-epochs", type=int, default=5)
    found.add_argument("--density", default="ER(0.1)")
    found.add_argument("--rate", type=float, default=0.002)
    found.add_argument("--every", type=int, default=100, help="steps between the updates of the topology")
    found.add_argument("--only", default="dense,torch,sparse")
    options = found.parse_args()
    set_threads(options.threads)
    torch.set_num_threads(options.threads)
    text = text_of(options.context)
    options.steps_per_epoch = math.ceil(len(text.Xtrain) / options.batch_size)
    about = {"characters": CHARACTERS, "vocabulary": text.classes, "sha256": text.sha256()}
    record: Record = {"text": about, "runs": {}, "failures": {}}
    runs = {
        "dense": lambda: ours(text, options, options.epochs),
        "torch": lambda: theirs(text, options, options.epochs),
        "sparse": lambda: ours(text, options, options.sparse_epochs, densities=options.density),
    }
    for name in options.only.split(","):
        record["runs"][name] = runs[name]()
    finish("texts", options, record)


# -- the report --------------------------------------------------------------------------------------


def tables(record: Record) -> list[Table]:
    """A row for each model."""
    rows = [
        [
            {"dense": "matgrad", "torch": "torch.nn", "sparse": "matgrad, RigL"}[name],
            f"{run.get('density', 1):.2g}",
            str(run["epochs"]),
            f"{run['test_loss'][-1]:.4f}",
            f"{run['flops'] / 1e12:.2f}" if "flops" in run else "",
            f"{run['seconds']:.0f}",
        ]
        for name, run in record["runs"].items()
    ]
    return [Table("A GPT on text", ["model", "density", "epochs", "held-out loss", "TFLOP", "train seconds"], rows)]


def notes(record: Record) -> list[str]:
    """What was trained on what."""
    text = record["text"]
    return [f"{text['characters']:,} characters, a vocabulary of {text['vocabulary']}; losses in nats per character"]


if __name__ == "__main__":
    main()
