"""The memory of a device: an error that says how much of it is needed, and how much is free."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from matgrad.foundation.limits import in_words


@contextmanager
def enough_memory(what: str, needed: Callable[[], int], device: torch.device) -> Iterator[None]:
    """Raise MemoryError, with the bytes that are needed and those that are free, if a device has too few of them."""
    try:
        yield
    except torch.OutOfMemoryError:
        found = f"found {in_words(_free(device))} free"
        advice = "smaller batches, or a smaller or sparser model, may help"
        raise MemoryError(f"{what}: needs about {in_words(needed())} on {device}, {found}; {advice}") from None


def _free(device: torch.device) -> int:
    """The bytes that are left on a device, those included that PyTorch keeps for later."""
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + kept
