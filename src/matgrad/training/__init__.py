"""Training: stochastic gradient descent, as one loop with callbacks that watch or steer it.

`fitting` has the method `M.fit`, the one way from data to a trained model, and `run` the loop.
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
