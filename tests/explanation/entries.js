// The corners of every result: computed by their expressions from named elements alone, and the value on the page;
// the elements that the expression reads, and those that the page marks.
() => {
  const { arithmetic, state, data, program } = matgrad;
  const at = (i, environment) => (typeof i === "string" ? environment[i] : i);
  const functions = {
    add: (x, y) => x + y,
    subtract: (x, y) => x - y,
    negative: (x) => -x,
    times: (x, y) => x * y,
    hadamard: (x, y) => x * y,
    scale: (x, y) => x * y,
    divide: (x, y) => x / y,
    reciprocal: (x) => 1 / x,
    step: (x) => Number(x >= 0),
    power: Math.pow,
    exp: Math.exp,
    log: Math.log,
    log1p: Math.log1p,
    sqrt: Math.sqrt,
    tanh: Math.tanh,
  };
  const compute = (node, environment, read) => {
    if (node.kind === "number") return node.number;
    if (node.over) {
      const all = matgrad.assignments(node.over, environment).map((x) => compute(node.body, x, read));
      return node.kind === "sum" ? all.reduce((x, y) => x + y, 0) : Math.max(...all);
    }
    const operands = node.operands?.map((x) => compute(x, environment, read));
    if (node.operation in functions) return functions[node.operation](...operands);
    const p = arithmetic.position(node.k, at(node.i, environment), at(node.j, environment));
    if (node.kind === "element") read.add(`${node.k} ${p}`);
    return state.results[node.k][p]; // an element, erf, or a random number
  };
  const isRandom = (k) => /seed|renewals/.test(program.values[k].name);
  const marked = (k, mask) => [...mask].flatMap((x, p) => (x && !isRandom(k) ? [`${k} ${p}`] : []));
  return data.steps.flatMap(({ value }) => {
    const [m, n] = arithmetic.shape(value);
    const corners = [[0, 0], [m - 1, n - 1], [0, n - 1]].filter((x) => arithmetic.position(value, ...x) !== undefined);
    return corners.map(([i, j]) => {
      const read = new Set();
      const found = compute(arithmetic.entry(value, i, j), {}, read);
      const sources = [...arithmetic.sources(value, i, j)].flatMap((x) => marked(...x));
      return [found, state.results[value][arithmetic.position(value, i, j)], [...read].sort(), sources.sort()];
    });
  });
}
