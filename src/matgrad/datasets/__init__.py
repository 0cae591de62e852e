"""Data sets from files, embedded or generated, and batches of them.
Every reader returns a `Dataset` with the data as in the file; `Dataset.normalize` is a separate step.
Downloads are in `matgrad.datasets.download`.
"""

from matgrad.datasets.builtin import checkerboard, digits, load_digits, mini
from matgrad.datasets.dataset import Dataset, hold_out
from matgrad.datasets.features import Features
from matgrad.datasets.images import cifar10, fashion_mnist, mnist
from matgrad.datasets.loader import DataLoader, one_hot
from matgrad.datasets.normalization import Normalization
from matgrad.datasets.npz_file import Preprocessed, npz, preprocessed, save_npz
from matgrad.datasets.svmlight_file import svmlight
from matgrad.datasets.tables import table, table_features

DataError = ValueError  # what all readers raise

__all__ = [
    "DataError",
    "DataLoader",
    "Dataset",
    "Features",
    "Normalization",
    "Preprocessed",
    "checkerboard",
    "cifar10",
    "digits",
    "fashion_mnist",
    "hold_out",
    "load_digits",
    "mini",
    "mnist",
    "npz",
    "one_hot",
    "preprocessed",
    "save_npz",
    "svmlight",
    "table",
    "table_features",
]
