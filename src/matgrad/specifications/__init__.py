"""Specifications: strings such as ``ReLU;Linear`` or ``Momentum(0.9)``, and what they stand for."""
