"""Training: `fitting` has `M.fit`, the one way from data to a trained model, and `run` the loop.

Beside the loop, `view` has what callbacks see of a run, `resuming` goes on from a checkpoint, and in `ranks` several
processes agree on what decides the result.
"""

from matgrad.training.fitting import fit as fit
from matgrad.training.run import Training as Training
from matgrad.training.run import stochastic_gradient_descent as stochastic_gradient_descent
from matgrad.training.view import BATCH_SIZE as BATCH_SIZE
from matgrad.training.view import EPOCHS as EPOCHS
from matgrad.training.view import LEARNING_RATE as LEARNING_RATE
from matgrad.training.view import History as History
