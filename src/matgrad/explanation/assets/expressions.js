// Expressions of entries, made by `Arithmetic.entry`: which parts are equal, what they stand for, and which get a name.

// An index is a number, or the name of a bound index, to which a number may be added: "$0+12".
const shift = (i, plus) => {
  if (typeof i !== "string") return i + plus;
  const [name, before] = parted(i);
  return before + plus ? `${name}+${before + plus}` : name;
};
const parted = (i) => {
  const [name, plus] = i.split("+");
  return [name, Number(plus ?? 0)];
};
const valueOf = (i, environment) => {
  if (typeof i !== "string") return i;
  const [name, plus] = parted(i);
  return environment[name] + plus;
};

const childrenOf = (node) => node.operands ?? (node.body ? [node.body] : []);

// cache key of an expression, independent of the names of its bound indices
function keyOf(node, names = new Map()) {
  const index = (i) => {
    if (typeof i !== "string") return i;
    const [name, plus] = parted(i);
    return `${names.get(name) ?? name}+${plus}`;
  };
  if (node.kind === "number") return `${node.number}`;
  if (node.over) {
    const inner = new Map(names);
    const sizes = node.over.map((x) => {
      inner.set(x.name, `#${inner.size}`);
      return `${x.size}/${x.row === undefined ? "" : index(x.row)}/${x.column === undefined ? "" : index(x.column)}`;
    });
    return `${node.kind}[${sizes}](${keyOf(node.body, inner)})`;
  }
  if (node.operands) return `${node.operation}(${node.operands.map((x) => keyOf(x, names))})`;
  return `${node.operation ?? ""}${node.k}[${index(node.i)},${index(node.j)}]`;
}

// whether an expression has no index that is bound outside of it
function isClosed(node, bound = []) {
  const names = [...bound, ...(node.over ?? []).map((x) => x.name)];
  const isBound = (i) => typeof i !== "string" || names.includes(parted(i)[0]);
  const own = node.kind === "element" || node.kind === "opaque" ? [node.i, node.j] : [];
  const limits = (node.over ?? []).flatMap((x) => [x.row, x.column]);
  return [...own, ...limits].every(isBound) && childrenOf(node).every((x) => isClosed(x, names));
}

// the values of the bound indices of a sum or maximum, one after the other
function* assignments(over, environment) {
  if (!over.length) return void (yield environment);
  const [{ name, size, support, row, column }, ...rest] = over;
  const at = (i) => valueOf(i, environment);
  for (let l = 0; l < size; l++) {
    const [i, j] = row === undefined ? [l, at(column)] : [at(row), l];
    if (support && !support.positions.has(i * support.shape[1] + j)) continue;
    yield* assignments(rest, { ...environment, [name]: l });
  }
}

// the number that an expression stands for
function evaluate(node, arithmetic, results, environment = {}) {
  if (node.kind === "number") return node.number;
  if (node.operation === "times") {
    return node.operands.reduce((x, y) => x * evaluate(y, arithmetic, results, environment), 1);
  }
  const at = (i) => valueOf(i, environment);
  const p = arithmetic.position(node.k, at(node.i), at(node.j));
  return p === undefined ? 0 : results[node.k][p];
}

// The equations of an expression: those of the parts that get a name of their own, then that of the whole. A part gets
// a name if it occurs twice, or if it is a sum or a maximum inside another operation.
function statements(root) {
  const counts = new Map();
  const visit = (node, isOuter) => {
    const key = keyOf(node);
    const seen = counts.get(key);
    if (seen) return void seen.count++;
    const entry = { node, key, count: 1, isInner: !isOuter };
    counts.set(key, entry);
    const passes = isOuter && ["add", "subtract", "negative", "scale", "divide"].includes(node.operation);
    for (const x of childrenOf(node)) visit(x, passes);
    counts.delete(key);
    counts.set(key, entry); // after its parts
  };
  visit(root, true);
  const isNamed = ({ node, count, isInner }) =>
    node !== root && childrenOf(node).length > 0 && isClosed(node) && (count > 1 || (node.over && isInner));
  return [...[...counts.values()].filter(isNamed), { node: root, key: keyOf(root) }];
}
