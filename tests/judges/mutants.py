"""Mutants of the package's equations: each is one small change in the syntax tree of a method."""

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import FunctionType, ModuleType

from matgrad import activation_functions as activations
from matgrad import layers, loss_functions, softmax_functions
from matgrad.layers.dropout import LayerWithDropout

# -- what is changed ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """A method of a class, or a function of a module."""

    owner: type | ModuleType
    name: str

    @property
    def function(self) -> FunctionType:
        return vars(self.owner)[self.name]

    def __str__(self) -> str:
        return f"{self.owner.__name__.rpartition('.')[2]}.{self.name}"


@dataclass(frozen=True)
class Mutant:
    """A target with one change: `before` became `after` in its line `line`."""

    target: Target
    kind: str
    line: int
    before: str
    after: str
    source: str  # of the changed function

    @property
    def key(self) -> tuple[str, str, str]:
        """What the table of equivalent mutants calls it."""
        return str(self.target), self.before, self.after

    def __str__(self) -> str:
        return f"{self.target}: {self.before}  →  {self.after}  ({self.kind})"


_LAYERS = (
    LayerWithDropout,
    layers.LinearLayer,
    layers.ActivationLayer,
    layers.SReLULayer,
    layers.SoftmaxLayer,
    layers.LogSoftmaxLayer,
    layers.BatchNormalizationLayer,
    layers.LayerNormalizationLayer,
    layers.RMSNormalizationLayer,
    layers.DropoutLayer,
    layers.LinearDropoutLayer,
)
_METHODS = {
    "layer": (
        "feedforward",
        "backpropagate",
        "dropout_matrix",
        "drop",
        "_activation",
        "_share",
        "update_statistics",
    ),
    "loss": ("__call__", "gradient", "mean_gradient", "targets"),
    "activation": ("__call__", "gradient", "left", "right", "middle", "_Phi"),
}
_LOSSES = (
    loss_functions.LossFunction,
    loss_functions._SmoothedLoss,
    *(cls for cls in loss_functions.LOSSES.values() if not cls.has_tokens),
)
_ACTIVATIONS = (
    activations._PiecewiseLinear,
    *activations.ACTIVATIONS.values(),
    activations.SReLUActivation,
)
_ABSTRACT = {("LossFunction", "__call__"), ("LossFunction", "gradient")}


def targets() -> list[Target]:
    """Every method and function of the package that contains equations."""
    kinds = (("layer", _LAYERS), ("loss", _LOSSES), ("activation", _ACTIVATIONS))
    methods = [
        Target(cls, name)
        for kind, classes in kinds
        for cls in classes
        for name in _METHODS[kind]
        if name in vars(cls) and (cls.__name__, name) not in _ABSTRACT
    ]
    functions = [
        Target(softmax_functions, name)
        for name, f in vars(softmax_functions).items()
        if isinstance(f, FunctionType) and f.__module__ == softmax_functions.__name__
    ]
    return methods + functions


# -- how it is changed -------------------------------------------------------------------------

# functions that could be mistaken for each other
_NEAR = {
    "columns_sum": ("columns_mean", "columns_max"),
    "columns_mean": ("columns_sum", "columns_max"),
    "rows_sum": ("rows_mean", "rows_max"),
    "rows_mean": ("rows_sum", "rows_max"),
    "rows_max": ("rows_sum",),
    "elements_sum": ("rows_sum",),
    "softmax": ("log_softmax",),
    "log_softmax": ("softmax",),
    "stable_softmax": ("stable_log_softmax",),
    "stable_log_softmax": ("stable_softmax",),
    "exp": ("log1p", "reciprocal"),
    "log": ("exp", "log1p"),
    "tanh": ("erf",),
    "clip": ("sign",),
    "erf": ("tanh",),
    "reciprocal": ("exp", "sqrt"),
    "log_sigmoid": ("tanh",),
    "identity": ("ones",),
    "Diag": ("diag",),
    "ones": ("zeros",),
    "sigmoid": ("relu", "tanh"),
    "relu": ("sigmoid", "tanh"),
    "left": ("right", "middle"),
    "right": ("left", "middle"),
    "middle": ("left", "right"),
}
# variables and attributes that could be mistaken for each other
_PAIRS = (
    *(("Y", "Z"), ("DY", "DZ"), ("L", "R"), ("al", "ar"), ("tl", "tr"), ("al", "tl"), ("ar", "tr")),
    *(("gamma", "beta"), ("s", "t"), ("mu", "Sigma"), ("Y", "T"), ("Y", "DY"), ("Z", "DZ"), ("Z", "DY"), ("X", "Y")),
    *(("X", "R"), ("X", "Z"), ("E", "X"), ("negative", "X"), ("positives", "negatives"), ("phi", "X"), ("right", "X")),
    *(("gamma", "inv_sqrt_Sigma"), ("running_mean", "running_variance"), ("sqrt_2", "sqrt_2_pi"), ("W", "b")),
)
_NOT_DROPPED = {"positive", "map", "super", "create_activation", "SReLUActivation"}

# variants known to be wrong, with the row of ERRATA.md
ERRATA = (
    ("BatchNormalizationLayer.feedforward", "columns_mean(X)", "columns_sum(X) / X.shape[1]", 1),
    ("SoftmaxLayer.backpropagate", "column_repeat(rows_sum(hadamard(DY, Y)), K)", "DIAG_N", 2),
    ("BatchNormalizationLayer.update_statistics", "m * Sigma * (N / (N - 1))", "m * Sigma", 6),
    ("BatchNormalizationLayer.feedforward", "inv_sqrt(Sigma, self.epsilon)", "inv_sqrt(Sigma)", 7),
    ("LayerWithDropout.dropout_matrix", "/ (1 - p)", "/ p", 8),
    ("LayerWithDropout.dropout_matrix", "not self.training or not self.dropout", "not self.dropout", 8),
    ("LogProbabilityLoss.__call__", "hadamard(T, Y)", "hadamard(T, log(Y))", 9),
    ("NegativeLogLikelihoodLoss.__call__", "log(positive(rows_sum(hadamard(Y, T))))", "rows_sum(hadamard(Y, T))", 10),
    ("LogisticCrossEntropyLoss.gradient", "hadamard(T, sigmoid(Y)) - T", "sigmoid(Y) - T", 11),
    ("BinaryCrossEntropyLoss.gradient", "sigmoid(Y) - T", "hadamard(T, sigmoid(Y)) - T", 11),
    ("LeakyReLUActivation.gradient", "step(X - self.alpha * X)", "step(self.alpha * X - X)", 14),
    ("MeanSquaredErrorLoss.gradient", "(K * N)", "(K * N) / N", 15),
    ("LossFunction.mean_gradient", "self.gradient(Y, T) if self.is_mean else ", "", 22),
    ("SReLULayer.backpropagate", "1 - row_repeat(act.al, N)", "row_repeat(act.al, N)", 25),
    ("AllReLUActivation.gradient", "self.alpha * (", "-self.alpha * (", 26),
)


@cache
def mutants() -> tuple[Mutant, ...]:
    """All mutants, in the order of the package, none twice."""
    found: dict[tuple[Target, str], Mutant] = {}
    for target in targets():
        for mutant in (*_mutants_of(target), *_branches_of(target), *_errata_of(target)):
            found.setdefault((target, mutant.source), mutant)
    return tuple(found.values())


def unchanged(target: Target) -> Mutant:
    """The mutant that changes nothing, which shows that patching alone does no harm."""
    return Mutant(target, "nothing", 0, "", "", ast.unparse(_tree(target.function)))


@cache
def _tree(function: FunctionType) -> ast.FunctionDef:
    """The syntax tree of a function, without its decorators and its docstring."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(tree, ast.FunctionDef)
    tree.decorator_list = []
    if ast.get_docstring(tree) is not None:
        del tree.body[0]
    return tree


def _mutants_of(target: Target) -> Iterator[Mutant]:
    tree = _tree(target.function)
    original = ast.unparse(tree)
    sizes, scope = _sizes(tree), _scope(tree, target.function)
    nodes = list(ast.walk(tree))
    for statement, root in _expressions(tree):
        allowed = _mutable(root)
        for i, node in enumerate(nodes):
            if id(node) not in allowed:
                continue
            changes = _changes(node, sizes, scope)
            if node is root:
                changes = [*changes, *_scaled(node)]
            for kind, new in changes:
                source = _replaced(tree, i, new)
                if source != original:
                    line = target.function.__code__.co_firstlineno + statement.lineno - tree.lineno
                    yield Mutant(target, kind, line, ast.unparse(root), _after(root, node, new), source)


def _branches_of(target: Target) -> Iterator[Mutant]:
    """An `if` that always or never holds."""
    tree = _tree(target.function)
    for node in ast.walk(tree):
        if isinstance(node, ast.If):
            test = next(j for j, n in enumerate(ast.walk(tree)) if n is node.test)
            for value in (True, False):
                source = _replaced(tree, test, ast.Constant(value))
                line = target.function.__code__.co_firstlineno + node.lineno - tree.lineno
                yield Mutant(target, "one branch", line, f"if {ast.unparse(node.test)}", f"if {value}", source)


def _errata_of(target: Target) -> Iterator[Mutant]:
    original = ast.unparse(_tree(target.function))
    for name, old, new, row in ERRATA:
        if name == str(target):
            assert old in original, f"{name} has no {old!r}"
            new = new.replace("DIAG_N", old.replace("K)", "Y.shape[0])"))
            yield Mutant(target, f"ERRATA row {row}", 0, old, new, original.replace(old, new, 1))


def _expressions(tree: ast.FunctionDef) -> Iterator[tuple[ast.stmt, ast.expr]]:
    """What is assigned, returned or passed to the base class, but not what is only unpacked or stored."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Tuple()], value=ast.Tuple(elts=parts)):
                yield from ((node, part) for part in parts if isinstance(part, ast.Call))
            case ast.Assign(value=value) | ast.Return(value=value) if value is not None:
                if not _only_unpacks(value):
                    yield node, value
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Call()), args=[_, value])):
                yield node, value


def _only_unpacks(node: ast.expr) -> bool:
    match node:
        case ast.Name() | ast.Constant() | ast.Attribute(attr="shape"):
            return True
        case ast.Attribute(value=ast.Name(id="self")) | ast.Call(func=ast.Name(id="map")):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr="_activation")):
            return True
    return False


def _mutable(root: ast.expr) -> set[int]:
    """The parts of an expression that may be changed: not `like=…`, nor the condition of an `if`."""
    skipped: set[int] = set()
    for node in ast.walk(root):
        parts: list[ast.AST] = []
        if isinstance(node, ast.Call):
            parts = [*node.keywords, node.func]
            if isinstance(node.func, ast.Name) and node.func.id == "product_on":
                parts.append(node.args[0])  # only its stored positions count
        elif isinstance(node, ast.IfExp):
            parts = [node.test]
        for part in parts:
            skipped |= {id(n) for n in ast.walk(part)}
    return {id(node) for node in ast.walk(root)} - skipped


def _sizes(tree: ast.FunctionDef) -> dict[str, ast.expr]:
    """For every size such as N, the other size of the same matrix."""
    found: dict[str, ast.expr] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=[a, b])], value=ast.Attribute(attr="shape") as shape):
                for name, other in ((a, 1), (b, 0)):
                    if name.id != "_":
                        found[name.id] = ast.Subscript(shape, ast.Constant(other), ast.Load())
    return found


def _scope(tree: ast.FunctionDef, function: FunctionType) -> set[str]:
    """The names that the function knows."""
    stored = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    constants = {name for name, value in function.__globals__.items() if isinstance(value, float)}
    return stored | {argument.arg for argument in tree.args.args} | constants


def _changes(node: ast.AST, sizes: dict[str, ast.expr], scope: set[str]) -> list[tuple[str, ast.expr]]:
    """What may stand in the place of a node, with the kind of the change."""
    match node:
        case ast.BinOp(left=a, op=ast.Add(), right=b):
            return [("drop a term", a), ("drop a term", b), ("flip a sign", ast.BinOp(a, ast.Sub(), b))]
        case ast.BinOp(left=a, op=ast.Sub(), right=b):
            swapped = ast.BinOp(b, ast.Sub(), a)
            flipped = ast.BinOp(a, ast.Add(), b)
            return [("drop a term", a), ("drop a term", _minus(b)), ("flip a sign", flipped), ("swap", swapped)]
        case ast.BinOp(left=a, op=ast.Mult(), right=b):
            return [("drop a factor", a), ("drop a factor", b)]
        case ast.BinOp(left=a, op=ast.Div(), right=b):
            return [("drop a factor", a), ("divide for multiply", ast.BinOp(a, ast.Mult(), b))]
        case ast.BinOp(left=a, op=ast.MatMult(), right=b):
            return [("drop a factor", a), ("drop a factor", b), ("swap", ast.BinOp(b, ast.MatMult(), a))]
        case ast.UnaryOp(op=ast.USub(), operand=a):
            return [("drop a minus", a)]
        case ast.Attribute(value=a, attr="T"):
            return [("drop a transpose", a)]
        case ast.Attribute(value=a, attr=name):
            return [("swap names", ast.Attribute(a, other, ast.Load())) for other in _others(name, None)]
        case ast.Name(id=name) if name in sizes:
            return [("swap sizes", sizes[name])]
        case ast.Name(id=name):
            return [("swap names", ast.Name(other, ast.Load())) for other in _others(name, scope)]
        case ast.IfExp(body=a, orelse=b):
            return [("one branch", a), ("one branch", b)]
        case ast.Constant(value=int(value)):
            return [("change a number", ast.Constant(value + 1))]
        case ast.Call():
            return _changed_call(node)
    return []


def _others(name: str, scope: set[str] | None) -> list[str]:
    others = [b for pair in _PAIRS for a, b in (pair, pair[::-1]) if a == name]
    return [other for other in others if scope is None or other in scope]


def _changed_call(node: ast.Call) -> list[tuple[str, ast.expr]]:
    f, args = node.func, node.args
    name = f.id if isinstance(f, ast.Name) else f.attr if isinstance(f, ast.Attribute) else ""

    def call(*args: ast.expr) -> ast.Call:
        return ast.Call(f, list(args), node.keywords)

    changes: list[tuple[str, ast.expr]] = []
    for near in _NEAR.get(name, ()):
        new = ast.Name(near, ast.Load()) if isinstance(f, ast.Name) else ast.Attribute(f.value, near, ast.Load())
        changes.append(("near function", ast.Call(new, args, node.keywords)))
    if name == "columns_sum":
        changes.append(("near function", ast.Attribute(ast.Call(ast.Name("rows_sum", ast.Load()), args, []), "T")))
    if name == "gradient" and isinstance(f, ast.Attribute):
        changes.append(("near function", ast.Call(f.value, args, [])))
    if name == "hadamard":
        changes += [("drop a factor", arg) for arg in args]
    elif name == "product_on":
        changes += [("drop a factor", args[1]), ("drop a factor", args[2]), ("swap", call(args[0], args[2], args[1]))]
    elif name == "inv_sqrt":
        changes.append(("drop a term", call(args[0])))
    elif name == "step":
        changes.append(("flip a sign", call(_minus(args[0]))))
    if name in ("exp", "log_sigmoid", "tanh", "erf", "sigmoid"):
        changes.append(("flip a sign", call(_minus(args[0]))))
    if len(args) == 1 and not node.keywords and name not in _NOT_DROPPED and name != "hadamard":
        changes.append(("drop a function", args[0]))
    return changes


def _scaled(node: ast.expr) -> list[tuple[str, ast.expr]]:
    """Twice, minus and zero times a whole equation."""
    if isinstance(node, (ast.Tuple, ast.GeneratorExp)) or ast.unparse(node).startswith("SReLUActivation"):
        return []
    twice, zero = (ast.BinOp(ast.Constant(c), ast.Mult(), node) for c in (2, 0))
    return [("times 2", twice), ("negative", _minus(node)), ("zero", zero)]


def _minus(node: ast.expr) -> ast.UnaryOp:
    return ast.UnaryOp(ast.USub(), node)


def _replaced(tree: ast.FunctionDef, i: int, new: ast.expr) -> str:
    """The source of a function whose i-th node is another."""
    tree = copy.deepcopy(tree)
    old = list(ast.walk(tree))[i]
    return ast.unparse(ast.fix_missing_locations(_Replace(old, new).visit(tree)))


def _after(root: ast.expr, node: ast.AST, new: ast.expr) -> str:
    i = next(i for i, n in enumerate(ast.walk(root)) if n is node)
    twin = copy.deepcopy(root)
    return ast.unparse(_Replace(list(ast.walk(twin))[i], new).visit(twin))


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.expr) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else self.generic_visit(node)
