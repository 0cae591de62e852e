"""Placements of the inputs of a training step: how X, T and the state are shared out among ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matgrad.program.program import EXAMPLES, Program, Value
from matgrad.program.sharding import AXES, COLUMNS, ROWS, WHOLE, Placement, is_number_of_elements

Placements = dict[str, Placement]  # by the names of inputs; others are WHOLE


def data_parallel(program: Program, size: int) -> Placements:
    """X, T and the weights s of the examples in ROWS; of sparse examples, the support and, with it, its values.

    A batch with fewer rows than there are ranks is not shared out: all of them compute all of it.
    """
    if program.inputs["T"].shape[0] < size:
        return {}
    examples = {name: ROWS for name in ("X", "T", "s") if name in program.inputs}
    return examples | ({EXAMPLES: ROWS, "X": COLUMNS} if EXAMPLES in program.supports else {})


def shared_optimizer(program: Program, size: int) -> Placements:
    """Data-parallel, and every rank keeps only a part of what the optimizers remember, as in ZeRO-1.

    It is in ROWS, or in COLUMNS if it has fewer rows than there are ranks. What is too small for both stays WHOLE, and
    so does what has one value per element of a sparse matrix.
    """
    remembered = [name for name in program.inputs if any(name.startswith(f"{other}.") for other in program.inputs)]
    return data_parallel(program, size) | {name: _by_size(program.inputs[name], size) for name in remembered}


def _by_size(x: Value, size: int) -> Placement:
    """In parts along the first axis that is long enough for `size` ranks."""
    if x.is_scalar or is_number_of_elements(x.shape[1]):
        return WHOLE
    return next((axis for axis, n in zip(AXES, x.shape, strict=True) if n >= size), WHOLE)


def tensor_parallel(program: Program, layers: Sequence[str]) -> Placements:
    """Consecutive layers in parts, as in Megatron, with all examples on every rank: of layers 1 and 2, ``["1", "2"]``.

    The first ones are shared out by their outputs and the last one by its inputs. That takes one sum in feedforward,
    and one in backpropagation if there are layers before them.
    """
    placements: Placements = {}
    for name, x in program.inputs.items():
        layer, _, parameter = name.partition(".")
        is_weights = f"{parameter}.".startswith("W.")
        if layer in layers[:-1] and not x.is_scalar and (is_weights or x.shape[1] > 1):
            placements[name] = ROWS if is_weights else COLUMNS
        elif layer == layers[-1] and is_weights and not x.is_scalar:
            placements[name] = COLUMNS
    return placements


def with_optimizers(program: Program, placements: Mapping[str, Placement]) -> Placements:
    """The placements, where what an optimizer remembers of a matrix is placed like it, if nothing else is said."""
    found = dict(placements)
    for name, placement in placements.items():
        for other, x in program.inputs.items():
            if other.startswith(f"{name}.") and not x.is_scalar:
                found.setdefault(other, placement)
    return found
