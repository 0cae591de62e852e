"""Train a multilayer perceptron on the embedded handwritten digits, and test it on held-out ones."""

import time

import matgrad as mg

mg.manual_seed(0)
X, t = mg.load_digits()
X = X / 16
test = slice(0, None, 5)  # every fifth digit is held out
train = [i for i in range(len(X)) if i % 5]

M = mg.MultilayerPerceptron(
    [
        mg.ActivationLayer(64, 128, mg.ReLUActivation()),
        mg.ActivationLayer(128, 64, mg.ReLUActivation()),
        mg.LinearLayer(64, 10),
    ]
)
M.set_optimizer("Momentum(0.9)")
print(M, end="\n\n")

start = time.perf_counter()
history = M.fit(
    X[train],
    t[train],
    loss="SoftmaxCrossEntropy",
    learning_rate=0.05,
    epochs=20,
    batch_size=50,
    seed=0,
    validation=(X[test], t[test]),
    verbose=True,
)
print(f"\ntrained in {time.perf_counter() - start:.1f} s")
print(f"test accuracy {history['validation_accuracy'][-1]:.3f}")
