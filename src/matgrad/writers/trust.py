"""What a proof of foreign code rests on: what the code keeps, what it asks of tensors, and that it can be followed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from matgrad.inspection.following import Follower, changed
from matgrad.inspection.settings import Setting, settings, texts
from matgrad.inspection.verdicts import suffixed
from matgrad.writers.kernels import StandIn
from matgrad.writers.subjects import Code, Context

ASKED = {  # what proofs assume if code uses attributes of tensors, by which it may decide
    "tensors are contiguous, on a CPU and in double precision": """dtype device is_cuda is_cpu is_contiguous stride
    layout is_sparse itemsize element_size weak_type sharding devices aval""",
    "all gradients are needed": "needs_input_grad requires_grad is_leaf grad_fn perturbed",
}


class Trust:
    """What is known of code that has run on symbols."""

    def __init__(self, code: Code) -> None:
        self.code, self.kept = code, list[Setting]()
        self.follower = Follower(code.libraries, code.refused, (Context, StandIn))
        self.following = self.follower.following

    def look(self) -> None:
        """Remember what the code keeps now."""
        self.kept = [*self._kept()]

    def _kept(self) -> Iterator[Setting]:
        """What the code depends on besides its arguments."""
        yield from self.follower.kept()
        for path, part in self.code.module.named_modules() if self.code.module is not None else ():
            for name, x in _attributes(part).items():
                yield from settings(suffixed(name, path), x)

    @property
    def conditions(self) -> list[str]:
        """What a proof is for."""
        used = self.follower.attributes()
        found = [f"{name} = {x}" for name, x in texts(x for x in self.kept if x.is_named).items()]
        return [*found, *(text for text, own in ASKED.items() if used & {*own.split()})]

    def problem(self) -> str:
        """Why a proof on symbols is none on numbers: the code is not followed, or changes; '' if it is one."""
        if name := changed():
            return f"{name} is changed, on which proofs rest"
        if problem := next(self.follower.problems(), ""):
            return f"the code {problem}, which a proof cannot follow"
        before, after = texts(self.kept), texts(self._kept())
        names = [n for n in before | after if before.get(n) != after.get(n)]
        return f"the code changes {names[0]} from run to run" if names else ""


def _attributes(module: Any) -> dict[str, Any]:
    """The attributes of a module of PyTorch apart from its parameters and parts: buffers, and what users have set."""
    known = vars(type(module).__mro__[-2]()).keys() - {"training"}
    own = {name: x for name, x in vars(module).items() if name not in known}
    return own | dict(module.named_buffers(recurse=False))
