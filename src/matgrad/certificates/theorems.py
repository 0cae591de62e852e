"""Certificates: what a program computes and claims, printed as definitions in Coq, and the theorem that it is right."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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
    Named,
    NotPrintableError,
    Number,
    SizeOf,
    Symbol,
    Term,
    expression,
    mapped,
    parts,
    sizes,
    substituted,
    term_of,
)
from matgrad.certificates.writing import Names, Variable, Writer, arrows
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


class Statement:
    """Sizes, symbols and values of a theorem, as lines of Coq."""

    def __init__(self, variable: Variable | None, *values: Value) -> None:
        self.variable, self.names, self.reader = variable, Names(), Reader()
        self.writer = Writer(variable, self.names)
        self.values: dict[Value, str] = {}  # with the names of their definitions
        self.lines: list[str] = []
        self.bodies: list[Term] = []  # of definitions
        inputs = [x for value in values for x in order_of(expanded(value)) if is_symbol(x)]
        self.positive = frozenset(symbol_of(x).name for x in inputs if symbol_of(x).is_positive)

    # -- values ---------------------------------------------------------------------------------
    def entry(self, value: Value, indices: Indices) -> Term:
        """The term of a value at some indices."""
        return substituted(self.reader.term(value), dict(zip(own_indices(value), indices, strict=True)))

    def depends(self, value: Value) -> bool:
        """Whether the variable occurs in the definition of a value."""
        return any(isinstance(x, Symbol) and self.writer.depends(x.name) for x in parts(self.reader.term(value)))

    def define(self, output: Value, name: str) -> None:
        """The definitions of a value, with a name, and of all that it needs."""
        term = self.reader.term(output)
        for n in (*sizes(term), *(i.size for i in (self.variable.indices if self.variable else ()))):
            self.names.size(n)
        for x in parts(term):
            if isinstance(x, Symbol):
                self.names(x.name)
        for value in order_of(output):
            if value not in self.values and not is_symbol(value) and value.operation != "number":
                text = name if value is output else f"v{len(self.values) + 1}"
                self.values[value] = self.names(text, f"value {len(self.values)}")
                self.lines.append(self._definition(value))

    def _definition(self, value: Value) -> str:
        at, body = dict(zip(own_indices(value), "ijmnopqrsuvw", strict=False)), definition(value)
        operands = operands_of(value)
        self.bodies.append(body)

        def named(x: Term) -> Term | None:
            if isinstance(x, Symbol) and x.name.startswith(OPERAND):
                return self.named(operands[int(x.name.removeprefix(OPERAND))], x.indices)
            return None

        text = self.writer.term(mapped(body, named), at)
        return self.writer.definition(self.values[value], self.depends(value), [*at.values()], text)

    def named(self, value: Value, indices: Indices) -> Term:
        """The value at some indices, by the name of its definition."""
        if is_symbol(value):
            return Symbol(symbol_of(value).name, indices)
        return Named(self.values[value], self.depends(value), indices)

    # -- what is given --------------------------------------------------------------------------
    def given(self, *terms: Term) -> Iterator[str]:
        """The sizes, symbols and functions in terms."""
        everything = (*terms, *self.bodies)
        symbols: dict[str, Indices] = {}
        functions: dict[str, None] = {}
        for x in (y for term in everything for y in parts(term)):
            match x:
                case Symbol(name, own) if name != "PI" and not name.startswith(OPERAND):
                    symbols[name] = own
                case Apply(f, _, None) if f not in FUNCTIONS or f == "erf":
                    functions[f.rstrip("'")] = None
        own = self.variable.indices if self.variable else ()
        for n in dict.fromkeys([*sizes(*everything), *(i.size for i in own)]):
            size = self.names.size(n)
            yield f"Variable {size} : nat.\nHypothesis {size}_positive : (0 < {size})%nat."
        for name, indices in symbols.items():
            if not self.writer.depends(name):
                yield from self.declared(name, indices)
        for f in functions:
            if f == "erf":
                yield "Variable erf : R -> R."
                yield "Hypothesis erf_d : forall x, is_derive erf x (2 * / sqrt PI * exp ((-1) * (x * x)))."
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

    def certificate(
        self, name: str, terms: Sequence[Term], proof: Proof, goal: str, tactic: str, at: Indices, before: Sequence[str]
    ) -> Certificate:
        """The module with a goal about these terms, at these indices, and a lemma before it, if there is one."""
        indices = [f"Variables {' '.join(i.name for i in at)} : nat."] if at else []
        indices += [f"Hypothesis H_{i.name} : ({i.name} < {self.names.size(i.size)})%nat." for i in at]
        point = self.declared(self.variable.name, self.variable.indices) if self.variable else ()
        mentioned = [proof.unfolded(d.body) for d in proof.leaves.known.values()]
        blocks = [
            ["Section Certificate."],
            list(self.given(*(SizeOf(i.size) for i in at), *terms, *mentioned)),
            ["(* what the code computes, operation by operation *)", *self.lines],
            before,
            [*point, *indices, *proof.hypotheses],
            ["(* the proof *)", *proof.lines] if proof.lines else [],
            [f"Theorem certified : {goal}.", f"Proof. {tactic}. Qed."],
            ["End Certificate."],
        ]
        text = "\n\n".join("\n".join(block) for block in blocks if block)
        return Certificate(re.sub(r"\W+", "_", name.replace("=", "is")), text)


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


def split_if_needed(make: Callable[[bool], Certificate]) -> Certificate:
    """A certificate whose proof splits exponents and factors only if there is no other."""
    try:
        return make(False)
    except NotPrintableError:
        return make(True)


def derivative_certificate(name: str, value: Value, symbol: Value, claimed: Value, is_split: bool) -> Certificate:
    """The theorem that the derivative of a scalar with respect to an entry of a symbol is the claimed entry.

    For a vector, it is that of each of its entries: the Jacobian is claimed.
    """
    value, claimed = expanded(value), expanded(claimed)
    count = len(own_indices(value))
    at = target((*own_indices(value), *own_indices(symbol)))
    own, entry = at[:count], at[count:]
    variable = Variable(symbol_of(symbol).name, entry)
    statement = Statement(variable, value, claimed)
    statement.define(value, "Y" if count else "L")
    statement.define(claimed, f"D{variable.name}")
    F, D = statement.entry(value, own), statement.entry(claimed, at)
    w, leaves = statement.writer, Leaves(variable.name, statement.positive)
    f, d = leaves.folded(F), leaves.folded(D)
    proof, before, start = Proof(w, leaves, is_split), list[str](), "{}"
    if any(x.body.function == "maximum" and x.depends for x in leaves_in(f)):
        plain = leaves.folded(term_of(expression(F)))  # in canonical form there is none
        shift = Proof(w, leaves, is_split=True, suffix="c")
        tactic = shift.equal(f, plain, own)
        before = [
            "Section Everywhere.",
            f"Variable {w.names(variable.name)} : {arrows(entry)}.",
            *shift.lines,
            f"Lemma everywhere : {w.bounds(own)}{w.term(statement.named(value, own))} = {w.term(plain)}.",
            f"Proof. {introduced(own)}change ({w.term(f)} = {w.term(plain)}); {tactic}. Qed.",
            "End Everywhere.",
        ]
        proof.defined, proof.unfolding = shift.defined, shift.unfolding
        by = "symmetry; apply everywhere" + "; assumption" * bool(own)
        start = f"apply (is_derive_ext (fun t => {w.term(plain, moving=True)})); [intros t; {by} | {{}}]"
        f = plain
    tactic = start.format(derivative(proof, f, d, at))
    is_claimed, of = w.term(statement.named(claimed, at)), w.term(statement.named(value, own), moving=True)
    goal = f"is_derive (fun t => {of}) ({w.point}) {is_claimed}"
    return statement.certificate(name, [F, D], proof, goal, tactic, at, before)


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
    statement, left, right = Statement(None, left, right), expanded(left), expanded(right)
    statement.define(left, "left")
    statement.define(right, "right")
    at = target(own_indices(right))
    terms = [statement.entry(x, at) for x in (left, right)]
    w, leaves = statement.writer, Leaves("", statement.positive)
    proof = Proof(w, leaves, is_split)
    x, y = map(leaves.folded, terms)
    proof.define(x, y)
    tactic = f"change ({w.term(x)} = {w.term(y)}); {proof.equal(x, y, at)}"
    goal = " = ".join(w.term(statement.named(value, at)) for value in (left, right))
    return statement.certificate(name, terms, proof, goal, tactic, at, ())
