"""The functions for models of other tools, of which each is imported when it is asked for."""

from .keras_models import from_keras as from_keras
from .keras_models import save_keras as save_keras
from .keras_models import to_keras as to_keras
from .onnx_models import from_onnx as from_onnx
from .onnx_models import to_onnx as to_onnx
from .torch_models import from_torch as from_torch
from .torch_models import load_torch as load_torch
from .torch_models import save_torch as save_torch
from .torch_models import to_torch as to_torch
