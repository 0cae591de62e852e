"""Certificates: what a program computes and claims, printed as definitions in Coq, and the theorem that it is right."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from matgrad.certificates.leaves import Leaves, leaves_in
from matgrad.certificates.proofs import Proof, introduced
from matgrad.certificates.reading import (
    OPERAND,
    Reader,
    definition,
    expanded,
    is_symbol,
    operands_of,
    own_indices,
    symbol_of,
)
from matgrad.certificates.terms import (
    FUNCTIONS,
    Apply,
    Indices,
    Number,
    Over,
    SizeOf,
    Symbol,
    Term,
    expression,
    parts,
    substituted,
    term_of,
)
from matgrad.certificates.writing import Names, Variable, Writer
from matgrad.index_notation.expressions import Index
from matgrad.program.program import Value


@dataclass
class Certificate:
    """A module for Coq with one theorem, which is called `certified`."""

    name: str
    text: str
    owner: str = ""  # the class, function or lemma that it is about

    def __str__(self) -> str:
        return f"Module {self.name}.\n{self.text}\nEnd {self.name}.\n"


@dataclass
class Statement:
    """Sizes, symbols and values of a theorem, as lines of Coq."""

    variable: Variable | None
    names: Names = field(default_factory=Names)
    values: dict[Value, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.writer = Writer(self.variable, self.names)
        self.reader = Reader()
        self.positive: set[str] = set()
        self.bodies: list[Term] = []  # of definitions

    # -- values ---------------------------------------------------------------------------------
    def depends(self, value: Value) -> bool:
        """Whether the variable occurs in the definition of a value."""
        name = self.variable.name if self.variable else ""
        return any(isinstance(x, Symbol) and x.name == name for x in parts(self.reader.term(value)))

    def define(self, output: Value, name: str = "") -> None:
        """The definitions of a value and of all that it needs."""
        everything = list(parts(self.reader.term(output)))
        for x in everything:
            match x:
                case SizeOf(n) | Over(Index(size=n), _):
                    self.names.size(n)
                case Symbol(_, own):
                    for i in own:
                        self.names.size(i.size)
        for i in self.variable.indices if self.variable else ():
            self.names.size(i.size)
        for x in everything:
            if isinstance(x, Symbol):
                self.names(x.name)
        for value in order_of(expanded(output)):
            if value not in self.values and not is_symbol(value) and value.operation != "number":
                is_last = value is expanded(output)
                text = name if is_last and name else f"v{len(self.values) + 1}"
                self.values[value] = self.names(text, f"value {len(self.values)}")
                self.lines.append(self._definition(value))

    def _definition(self, value: Value) -> str:
        own = own_indices(value)
        at, body = dict(zip(own, self.letters(own), strict=True)), definition(value)
        self.bodies.append(body)
        head = [self.values[value]]
        if self.variable and self.depends(value):
            head.append(f"({self.names(self.variable.name)} : {arrows(self.variable.indices)})")
        if own:
            head.append(f"({' '.join(at.values())} : nat)")
        text = _OperandWriter(self, operands_of(value)).term(body, at)
        return f"Definition {' '.join(head)} : R := {text}."

    @staticmethod
    def letters(indices: Indices) -> list[str]:
        """i and j, or i1, i2, j1 for the parts of pairs."""
        return [x for x, _ in zip("ijmnopqrsuvw", indices, strict=False)]

    def applied(self, value: Value, moving: bool, indices: Indices) -> str:
        """The value at some indices."""
        return self.at(value, moving, [self.writer.index(i) for i in indices])

    def at(self, value: Value, moving: bool, indices: list[str]) -> str:
        """The value at some indices, by their names."""
        if is_symbol(value):
            x = Symbol(symbol_of(value).name, own_indices(value))
            return self.writer.term(x, dict(zip(own_indices(value), indices, strict=True)), moving)
        of = [self.writer.variable_text(moving)] if self.variable and self.depends(value) else []
        words = [self.values[value], *of, *indices]
        return words[0] if len(words) == 1 else f"({' '.join(words)})"

    # -- what is given --------------------------------------------------------------------------
    def given(self, *terms: Term) -> Iterator[str]:
        """The sizes, symbols and functions in terms."""
        sizes: dict[str, None] = {}
        symbols: dict[str, Indices] = {}
        functions: dict[str, None] = {}
        for x in (y for term in (*terms, *self.bodies) for y in parts(term)):
            match x:
                case SizeOf(n):
                    sizes[n] = None
                case Over(k, _):
                    sizes[k.size] = None
                case Symbol(name, own) if name != "PI" and not name.startswith(OPERAND):
                    symbols[name] = own
                case Apply(f, _, k):
                    if k is not None:
                        sizes[k.size] = None
                    elif f not in FUNCTIONS or f == "erf":
                        functions[f.rstrip("'")] = None
        variable = self.variable
        symbols.pop(variable.name if variable else "", None)
        for own in (*symbols.values(), variable.indices if variable else ()):
            sizes |= {i.size: None for i in own}
        for n in sizes:
            size = self.names.size(n)
            yield f"Variable {size} : nat.\nHypothesis {size}_positive : (0 < {size})%nat."
        for name, own in symbols.items():
            yield from self.declared(name, own)
        for f in functions:
            if f == "erf":
                yield "Variable erf : R -> R."
                yield ("Hypothesis erf_d : forall x, is_derive erf x (2 * / sqrt PI * exp ((-1) * (x * x))).")
                continue
            n, slope = self.names(f), self.names(f"{f}'")
            yield f"Variables {n} {slope} : R -> R.\nHypothesis {n}_d : forall x, is_derive {n} x ({slope} x)."

    def declared(self, name: str, indices: Indices) -> Iterator[str]:
        """A symbol, and that it is positive."""
        text = self.names(name)
        yield f"Variable {text} : {arrows(indices)}."
        if name in self.positive:
            own = [f"i{k}" for k in range(len(indices))]
            every = f"forall {' '.join(own)}, " if own else ""
            yield f"Hypothesis {text}_positive : {every}0 < {' '.join([text, *own])}."


class _OperandWriter(Writer):
    """A writer of the definition of a value, in which operands have the names of their definitions."""

    def __init__(self, statement: Statement, operands: tuple[Value, ...]) -> None:
        super().__init__(statement.variable, statement.names)
        self.statement, self.operands = statement, operands

    def term(self, x: Term, at: Mapping[Index, str] | None = None, moving: bool = False) -> str:
        """A term."""
        if isinstance(x, Symbol) and x.name.startswith(OPERAND):
            operand = self.operands[int(x.name.removeprefix(OPERAND))]
            return self.statement.at(operand, moving, [(at or {}).get(i, i.name) for i in x.indices])
        return super().term(x, at, moving)


def arrows(indices: Indices) -> str:
    """nat -> nat -> R"""
    return "nat -> " * len(indices) + "R"


def order_of(output: Value) -> Iterator[Value]:
    """A value and what it needs, in order, with composed operations expanded."""
    done: set[Value] = set()

    def visit(value: Value) -> Iterator[Value]:
        if value not in done:
            done.add(value)
            for x in operands_of(value):
                yield from visit(x)
            yield value

    yield from visit(output)


def positive_symbols(*values: Value) -> set[str]:
    """The names of inputs that are positive."""
    found = set()
    for value in values:
        for x in order_of(expanded(value)):
            if is_symbol(x) and symbol_of(x).is_positive:
                found.add(symbol_of(x).name)
    return found


def derivative_certificate(name: str, value: Value, symbol: Value, claimed: Value, is_split: bool) -> Certificate:
    """The theorem that the derivative of a scalar with respect to an entry of a symbol is the claimed entry.

    For a vector, it is that of each of its entries: the Jacobian is claimed.
    """
    value, claimed = expanded(value), expanded(claimed)
    count = len(own_indices(value))
    at = target((*own_indices(value), *own_indices(symbol)))
    own, entry = at[:count], at[count:]
    variable = Variable(symbol_of(symbol).name, entry)
    statement = Statement(variable)
    statement.positive = positive_symbols(value, claimed)
    statement.define(value, "Y" if count else "L")
    statement.define(claimed, f"D{variable.name}")
    F = substituted(statement.reader.term(value), dict(zip(own_indices(value), own, strict=True)))
    D = substituted(statement.reader.term(claimed), dict(zip(own_indices(claimed), at, strict=True)))
    w, leaves = statement.writer, Leaves(variable.name, frozenset(statement.positive))
    f, d = leaves.folded(F), leaves.folded(D)
    proof, everywhere, start = Proof(w, leaves, is_split), list[str](), ""
    if any(x.body.function == "maximum" and x.depends for x in leaves_in(f)):
        plain = leaves.folded(term_of(expression(F)))  # in canonical form there is none
        shift = Proof(w, leaves, is_split=True, suffix="c")
        tactic = shift.equal(f, plain, own)
        text, of = w.names(variable.name), statement.applied(value, False, own)
        everywhere = [
            "Section Everywhere.",
            f"Variable {text} : {arrows(entry)}.",
            *shift.lines,
            f"Lemma everywhere : {w.bounds(own)}{of} = {w.term(plain)}.",
            f"Proof. {introduced(own)}change ({w.term(f)} = {w.term(plain)}); {tactic}. Qed.",
            "End Everywhere.",
        ]
        proof.defined, proof.unfolding = shift.defined, shift.unfolding
        by = "symmetry; apply everywhere" + "; assumption" * bool(own)
        start = f"apply (is_derive_ext (fun t => {w.term(plain, moving=True)})); [intros t; {by} | "
        f = plain
    tactic = derivative(proof, f, d, at) if not start else f"{start}{derivative(proof, f, d, at)}]"
    of, is_claimed = statement.applied(value, True, own), statement.applied(claimed, False, at)
    goal = f"is_derive (fun t => {of}) ({w.point}) {is_claimed}"
    return assembled(name, statement, [F, D], everywhere, proof, goal, tactic, at)


def target(indices: Indices) -> Indices:
    """The indices of the entry that a theorem is about."""
    return tuple(Index(x, i.size) for x, i in zip(("a", "b", "a1", "b1", "a2", "b2"), indices, strict=False))


def derivative(proof: Proof, f: Term, d: Term, at: Indices) -> str:
    """The tactic for the derivative of a term, which is claimed to be another, at these free indices."""
    w = proof.writer
    proof.define(f, d)
    slope, tactic = proof.tangent(f)
    if slope is None:
        slope, tactic = Number(Fraction(0)), "apply d_const"
    proof.define(slope)
    goal = f"is_derive (fun t => {w.term(f, moving=True)}) ({w.point}) {w.term(slope)}"
    return (
        f"apply (is_derive_equal _ _ {w.term(slope)}); [change ({goal}); {tactic} | "
        f"change ({w.term(slope)} = {w.term(d)}); {proof.equal(slope, d, at)}]"
    )


def equation_certificate(name: str, left: Value, right: Value, is_split: bool) -> Certificate:
    """The theorem that two values have the same entries."""
    statement = Statement(None)
    statement.positive = positive_symbols(left, right)
    left, right = expanded(left), expanded(right)
    statement.define(left, "left")
    statement.define(right, "right")
    at = target(own_indices(right))
    terms = [substituted(statement.reader.term(x), dict(zip(own_indices(x), at, strict=True))) for x in (left, right)]
    leaves = Leaves("", frozenset(statement.positive))
    proof, w = Proof(statement.writer, leaves, is_split), statement.writer
    x, y = map(leaves.folded, terms)
    proof.define(x, y)
    tactic = f"change ({w.term(x)} = {w.term(y)}); {proof.equal(x, y, at)}"
    goal = f"{statement.applied(left, False, at)} = {statement.applied(right, False, at)}"
    return assembled(name, statement, terms, [], proof, goal, tactic, at)


def assembled(
    name: str,
    statement: Statement,
    terms: list[Term],
    everywhere: list[str],
    proof: Proof,
    goal: str,
    tactic: str,
    at: Indices,
) -> Certificate:
    """The file."""
    names, indices, point = statement.names, list[str](), list[str]()
    if at:
        indices = [f"Variables {' '.join(i.name for i in at)} : nat."]
        indices += [f"Hypothesis H_{i.name} : ({i.name} < {names.size(i.size)})%nat." for i in at]
    if statement.variable:
        point = list(statement.declared(statement.variable.name, statement.variable.indices))
    blocks = [
        ["Section Certificate."],
        list(statement.given(*(SizeOf(i.size) for i in at), *terms, *proof.mentioned())),
        ["(* what the code computes, operation by operation *)", *statement.lines],
        everywhere,
        [*point, *indices, *proof.hypotheses],
        ["(* the proof *)", *proof.lines] if proof.lines else [],
        [f"Theorem certified : {goal}.", f"Proof. {tactic}. Qed."],
        ["End Certificate."],
    ]
    text = "\n\n".join("\n".join(block) for block in blocks if block)
    return Certificate(re.sub(r"\W+", "_", name.replace("=", "is")), text)
