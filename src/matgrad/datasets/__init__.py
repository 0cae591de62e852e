"""Data sets from files, embedded or generated, and batches of them.
Every reader returns a `Dataset` with the data as in the file; `Dataset.normalize` is a separate step.
Downloads are in `matgrad.datasets.download`.
"""

from matgrad.datasets.builtin import checkerboard as checkerboard
from matgrad.datasets.builtin import digits as digits
from matgrad.datasets.builtin import load_digits as load_digits
from matgrad.datasets.builtin import mini as mini
from matgrad.datasets.dataset import Dataset as Dataset
from matgrad.datasets.dataset import Normalization as Normalization
from matgrad.datasets.dataset import hold_out as hold_out
from matgrad.datasets.features import Features as Features
from matgrad.datasets.images import cifar10 as cifar10
from matgrad.datasets.images import fashion_mnist as fashion_mnist
from matgrad.datasets.images import mnist as mnist
from matgrad.datasets.loader import DataLoader as DataLoader
from matgrad.datasets.loader import one_hot as one_hot
from matgrad.datasets.npz_file import Preprocessed as Preprocessed
from matgrad.datasets.npz_file import npz as npz
from matgrad.datasets.npz_file import preprocessed as preprocessed
from matgrad.datasets.npz_file import save_npz as save_npz
from matgrad.datasets.svmlight_file import svmlight as svmlight
from matgrad.datasets.tables import table as table
from matgrad.datasets.tables import table_features as table_features
from matgrad.datasets.text_file import CONTEXT as CONTEXT
from matgrad.datasets.text_file import Text as Text
from matgrad.datasets.text_file import load_text as load_text
from matgrad.datasets.text_file import text as text

DataError = ValueError  # what all readers raise
