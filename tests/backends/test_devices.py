"""Devices by name: what each backend finds, and what it says of those that there are not."""

import json

import numpy as np
import pytest

from cli_support import run, succeed
from matgrad.backends import automatic_backend, get_backend
from matgrad.datasets import DataLoader
from matgrad.foundation.limits import in_words
from matgrad.specifications.models import create_model

torch = pytest.importorskip("torch")
TORCH = get_backend("torch")


def fail(*arguments):
    """What a command says that fails."""
    result = run(*arguments)
    assert result.exit_code == 2
    return result.stderr


def model():
    return create_model("ReLU;Linear", "6;5;3", optimizers="Momentum(0.9)")


@pytest.fixture
def gpus(monkeypatch):
    """Let PyTorch see two GPUs with 1 GB each, whose memory is that of the processor."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (1 << 30, 2 << 30))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device=None: 300 << 20)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device=None: 100 << 20)


class TestPyTorch:
    def test_sees_no_gpu_here(self):
        if torch.cuda.is_available():
            pytest.skip("there is one")
        version = torch.__version__
        expected = f"device 'cuda': PyTorch sees no GPU \\(torch {version}.* is a build without CUDA\\); expected cpu"
        with pytest.raises(ValueError, match=expected.replace("+", "\\+")):
            model().to("torch", device="cuda")

    def test_says_that_a_build_for_cuda_finds_none(self, monkeypatch):
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
        monkeypatch.setattr(torch.version, "cuda", "13.0")
        with pytest.raises(ValueError, match=r"sees no GPU \(torch .* finds none\); expected cpu"):
            TORCH.find_device("cuda:1")

    def test_knows_how_many_there_are(self, gpus):
        with pytest.raises(ValueError, match="device 'cuda:2': PyTorch sees 2 GPUs; expected cpu or cuda:0 or cuda:1"):
            TORCH.find_device("cuda:2")

    @pytest.mark.parametrize("name", ["gpu", "meta", "cuda:x", "", "cpu:3:4"])
    def test_refuses_other_names(self, name):
        with pytest.raises(ValueError, match=f"device '{name}': "):
            TORCH.find_device(name)

    def test_automatic_is_the_processor_without_a_gpu(self, monkeypatch):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        assert TORCH.find_device("auto") == TORCH.find_device("cpu") == TORCH.find_device(None) == "cpu"
        assert model().to("torch", device="auto").device == "cpu"
        assert automatic_backend("auto") == automatic_backend()

    def test_automatic_is_a_gpu(self, gpus, monkeypatch):
        monkeypatch.setattr(torch, "zeros", lambda n, device: torch.empty(n, device="meta"))  # cuda:0 is not here
        monkeypatch.setattr(torch.Tensor, "cpu", lambda X: X)
        assert TORCH.find_device("auto") == "meta"
        assert automatic_backend("auto") == "torch"

    def test_free_memory_includes_what_pytorch_keeps(self, gpus):
        assert TORCH.free_memory("cuda:1") == (1 << 30) + (200 << 20)
        assert TORCH.free_memory("cpu") is None


@pytest.mark.parametrize("name", ["numpy", "native"])
def test_backends_without_devices_have_the_processor(name):
    M = model().to(name, device="auto")
    assert (M.device, M.engine) == (None, name)
    assert M.to(name, device="cpu").device is None
    with pytest.raises(ValueError, match="device 'cuda': expected cpu; only torch, jax and tensorflow"):
        DataLoader(np.ones((4, 6)), np.array([0, 1, 2, 0])).to(name, device="cuda")


def test_an_automatic_backend_without_pytorch(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr("matgrad.backends.get_backend", missing)
    assert automatic_backend("auto") == automatic_backend()


class TestMemory:
    """What does not fit is told before anything is moved."""

    def test_of_a_model(self, monkeypatch):
        monkeypatch.setattr(type(TORCH), "free_memory", lambda self, device: 100)
        M = model()  # 6·5 + 5 + 5·3 + 3 = 53 parameters, and as many for momentum
        with pytest.raises(MemoryError, match="the model: needs 424 bytes on cpu, found 100 bytes free"):
            M.to("torch", dtype="float32")
        assert M.backend.name == "numpy"

    def test_of_data(self, monkeypatch):
        monkeypatch.setattr(type(TORCH), "free_memory", lambda self, device: 1 << 20)
        X, labels = np.ones((1000, 300)), np.arange(1000) % 5
        loader = DataLoader(X, labels, weights=np.ones(1000))
        with pytest.raises(MemoryError, match=r"the data: needs 1\.15 MB on cpu, found 1 MB free"):
            loader.to("torch", dtype="float32")
        assert in_words(4 * (X.size + 25 + 1000)) == "1.15 MB"

    def test_of_what_is_there_already_is_not_needed_again(self, monkeypatch):
        M, loader = model().to("torch"), DataLoader(np.ones((4, 6)), np.array([0, 1, 2, 0])).to("torch")
        monkeypatch.setattr(type(TORCH), "free_memory", lambda self, device: 0)
        assert M.to(dtype="float64").dtype == loader.to(dtype="float64").T.numpy().dtype.name == "float64"


class TestCommandLine:
    @pytest.mark.parametrize(
        "error",
        [
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 5 GiB, of which 3 GiB is free.\nat line 3"),
            RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.\nat line 3"),
        ],
        ids=["PyTorch", "JAX"],
    )
    def test_too_little_memory_in_training_is_told_in_one_line(self, monkeypatch, error):
        def fail_to_train(*arguments):
            raise error

        monkeypatch.setattr("matgrad.training.run.Training.train", fail_to_train)
        said = fail("train", "--epochs", 1)
        assert str(error).partition("\n")[0] in " ".join(said.split())
        assert "line 3" not in said

    def test_automatic_device_is_recorded(self, tmp_path):
        if torch.cuda.is_available():
            pytest.skip("there is a GPU")
        record = json.loads(succeed("train", "--epochs", 1, "--backend", "torch", "--device", "auto", "--json"))
        assert (record["device"], record["configuration"]["device"], record["matmul"]) == ("cpu", "auto", "float32")
        record = json.loads(succeed("train", "--epochs", 1, "--device", "auto", "--json"))
        assert (record["backend"], record["device"]) == (automatic_backend(), "cpu")

    def test_evaluate_and_predict_say_that_there_is_no_gpu(self, tmp_path):
        if torch.cuda.is_available():
            pytest.skip("there is one")
        succeed("train", "--epochs", 1, "--save-weights", tmp_path / "m.npz", "--quiet")
        assert "device 'cuda': PyTorch sees no GPU" in fail("evaluate", tmp_path / "m.npz", "--device", "cuda")
        assert "device 'cuda': PyTorch sees no GPU" in fail(
            "predict", tmp_path / "m.npz", tmp_path / "y.csv", "--backend", "torch", "--device", "cuda"
        )
        assert "accuracy" in succeed("evaluate", tmp_path / "m.npz", "--device", "auto")
