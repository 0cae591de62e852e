"""Training: stochastic gradient descent, as one loop with callbacks that watch or steer it.

`run` has the loop, `rates` its learning rates, and `fitting` the method `M.fit`.
"""

from matgrad.training.fitting import fit
from matgrad.training.run import (
    BATCH_SIZE,
    EPOCHS,
    LEARNING_RATE,
    Data,
    History,
    Training,
    stochastic_gradient_descent,
)

__all__ = [
    "BATCH_SIZE",
    "EPOCHS",
    "LEARNING_RATE",
    "Data",
    "History",
    "Training",
    "fit",
    "stochastic_gradient_descent",
]
