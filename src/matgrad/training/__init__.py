"""Training: `fitting` has the method `M.fit`, the one way from data to a trained model, and `run` the loop."""

from matgrad.training.fitting import fit as fit
from matgrad.training.run import BATCH_SIZE as BATCH_SIZE
from matgrad.training.run import EPOCHS as EPOCHS
from matgrad.training.run import LEARNING_RATE as LEARNING_RATE
from matgrad.training.run import History as History
from matgrad.training.run import Training as Training
from matgrad.training.run import stochastic_gradient_descent as stochastic_gradient_descent
