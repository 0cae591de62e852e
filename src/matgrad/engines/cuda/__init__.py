"""Programs on an NVIDIA GPU: few generated kernels, sparse products of our own, and whole epochs in CUDA graphs."""
