// Where an entry of a matrix comes from: the entries of named matrices that it is computed from, and the expression.
// An unnamed value is followed back to its operands; a named one, such as Z1, is where an expression ends.

const isScalar = ({ shape }) => shape.length === 0;

class Arithmetic {
  constructor(program, named) {
    this.program = program;
    this.values = program.values;
    this.named = named;
    this.supports = this.#supports();
  }

  // The support of every 1×nnz value that has the stored elements of a sparse matrix: elementwise operations keep it.
  #supports() {
    const found = this.values.map(() => null);
    const learn = (k, S) => {
      if (found[k] || isScalar(this.values[k]) || this.values[k].operation === "support") return false;
      found[k] = S;
      return true;
    };
    const inputOf = (name) => this.values.findIndex((x) => x.operation === "input" && x.name === name);
    const pairs = Object.entries(this.program.outputs).map(([name, k]) => [k, inputOf(name)]);
    this.values.forEach((value, k) => {
      const [S, first] = value.operands;
      if (["sampled_product", "uniform_on"].includes(value.operation)) learn(k, this.support(S));
      if (/^(sparse_|dense)/.test(value.operation)) learn(first, this.support(S));
      if (value.operation in LINES) pairs.push(...value.operands.map((x) => [k, x]));
    });
    let isNew = true;
    while (isNew) {
      isNew = false;
      for (const [a, b] of pairs) {
        if (found[a] && b >= 0) isNew = learn(b, found[a]) || isNew;
        if (found[b]) isNew = learn(a, found[b]) || isNew;
      }
    }
    return found;
  }

  // a support with the size of its matrix, and the positions of its elements by row and column
  support(k) {
    const S = this.program.supports[this.values[k].name];
    const [rows, columns] = this.values[k].shape;
    S.shape ??= [rows, columns];
    S.positions ??= new Map(S.rows.map((row, p) => [row * columns + S.columns[p], p]));
    return S;
  }

  // the size of the matrix that a value stands for
  shape(k) {
    return this.supports[k]?.shape ?? (isScalar(this.values[k]) ? [1, 1] : this.values[k].shape);
  }

  // the index of an element in a value; undefined where a sparse matrix stores none
  position(k, i, j) {
    const n = this.shape(k)[1];
    return this.supports[k] ? this.supports[k].positions.get(i * n + j) : i * n + j;
  }

  // the row and the column of an element
  place(k, p) {
    const n = this.shape(k)[1];
    const S = this.supports[k];
    return S ? [S.rows[p], S.columns[p]] : [Math.floor(p / n), p % n];
  }

  isLeaf(k) {
    return this.named.has(k) || this.values[k].operation === "input";
  }

  // The named matrices that a value is computed from, in the order of its equation, and whether each is transposed.
  operands(root) {
    const found = new Map();
    const visit = (k, isTransposed) => {
      const { operation, operands } = this.values[k];
      if (["number", "support"].includes(operation)) return;
      if (k !== root && this.isLeaf(k)) {
        found.set(k, (found.get(k) ?? isTransposed) && isTransposed);
        return;
      }
      const flips = operands.map((_, p) => isTransposed !== this.#flips(operation, p));
      const order = operands.map((_, p) => p);
      if (isTransposed && /product$|matmul/.test(operation)) order.reverse(); // (W Xᵀ)ᵀ is X Wᵀ
      for (const p of order) visit(operands[p], flips[p]);
    };
    visit(root, false);
    return [...found].map(([value, isTransposed]) => ({ value, isTransposed }));
  }

  #flips(operation, p) {
    if (operation === "sparse_transposed_product") return p === 1;
    return operation === "transpose" || (operation === "sampled_product" && p === 2);
  }

  // Which elements of the named matrices an element of a value is computed from: masks by value; labels are in `results`.
  sources(root, i, j, results) {
    const masks = new Map();
    const mask = (k) => {
      if (!masks.has(k)) masks.set(k, new Uint8Array(sizeOf(this.values[k])));
      return masks.get(k);
    };
    mask(root)[this.position(root, i, j)] = 1;
    for (let k = root; k >= 0; k--) {
      if (masks.has(k) && (k === root || !this.isLeaf(k))) this.#spread(k, mask, results);
    }
    return new Map([...masks].filter(([k]) => k !== root && this.isLeaf(k)));
  }

  #spread(k, mask, results) {
    const { operation, operands, operandShapes, shape } = this.values[k];
    const n = shape[1] ?? 1;
    const S = /^(sparse_|sampled|dense|uniform_on|gather|scatter)/.test(operation) ? this.support(operands[0]) : null;
    const to = (p, row, column) => {
      const columns = operandShapes[p][1] ?? 1;
      const marked = mask(operands[p]);
      for (const i of row === null ? range(operandShapes[p][0]) : [row]) {
        for (const j of column === null ? range(columns) : [column]) marked[i * columns + j] = 1;
      }
    };
    const stored = (p) => (mask(operands[1])[p] = 1);
    const rules = {
      transpose: (i, j) => to(0, j, i),
      row_repeat: (i, j) => to(0, 0, j),
      column_repeat: (i) => to(0, i, 0),
      full: () => to(0, 0, 0),
      elements_sum: () => to(0, null, null),
      columns_sum: (i, j) => to(0, null, j),
      columns_max: (i, j) => to(0, null, j),
      rows_sum: (i) => to(0, i, null),
      rows_max: (i) => to(0, i, null),
      matmul: (i, j) => (to(0, i, null), to(1, null, j)),
      sparse_product: (i, j) => {
        S.rows.forEach((row, p) => row === i && (stored(p), to(2, S.columns[p], j)));
      },
      sparse_transposed_product: (i, j) => {
        S.columns.forEach((column, p) => column === i && (stored(p), to(2, S.rows[p], j)));
      },
      sampled_product: (_, p) => (to(1, S.rows[p], null), to(2, S.columns[p], null)),
      dense: (i, j) => S.positions.has(i * n + j) && stored(S.positions.get(i * n + j)),
      uniform_on: () => (to(1, 0, 0), to(2, 0, 0)),
      uniform: () => (to(0, 0, 0), to(1, 0, 0)),
      stack: (i, j) => (mask(operands[0])[i * n + j] = 1),
      unstack: (i, j) => (mask(operands[0])[i * n + j] = 1),
      gather: (i, j) => S.rows.forEach((row, p) => row === j && to(1, i, S.columns[p])),
      scatter: (i, j) => S.columns.forEach((column, p) => column === j && to(1, i, S.rows[p])),
      block_product: (i, j) => {
        const [[m, q], [rows]] = operandShapes;
        const first = Math.floor((i * rows) / (m * q)) * q; // of the rows of its block
        to(0, i, null);
        for (const l of range(q)) to(1, first + l, j);
      },
      block_transposed_product: (i, j) => {
        const [[m, q]] = operandShapes;
        const p = (m * q) / shape[0];
        for (const l of range(p)) to(0, Math.floor(i / q) * p + l, i % q), to(1, Math.floor(i / q) * p + l, j);
      },
      diag_product: (i, j) => {
        const [[m], [, columns]] = operandShapes;
        to(0, i, null);
        to(1, null, Math.floor(i / ((m * n) / columns)) * n + j);
      },
      one_hot_product: (i, j) => {
        const label = results[operands[0]][i];
        to(0, i, 0);
        if (label >= 0 && label < operandShapes[1][0]) to(1, label, j);
      },
      one_hot_transposed_product: (i, j) => {
        results[operands[0]].forEach((label, l) => label === i && (to(0, l, 0), to(1, l, j)));
      },
      diag: (i) => to(0, i, i),
      Diag: (i, j) => i === j && (operandShapes[0][0] === 1 ? to(0, 0, i) : to(0, i, 0)),
    };
    const same = (i, j) => operands.forEach((x, p) => (isScalar(this.values[x]) ? to(p, 0, 0) : to(p, i, j)));
    mask(k).forEach((isMarked, p) => isMarked && (rules[operation] ?? same)(Math.floor(p / n), p % n));
  }

  // Which elements of a value depend on an element of a named matrix, as a mask: those that it turns into NaN.
  influence(root, k, p, results) {
    const changed = new Map([[k, results[k].map((x, q) => (q === p ? NaN : x))]]);
    const compute = (v) => {
      const { operation, operands } = this.values[v];
      if (changed.has(v) || ["input", "number", "support"].includes(operation) || (v !== root && this.isLeaf(v))) return;
      operands.forEach(compute);
      if (!operands.some((x) => changed.has(x))) return;
      const sum = { letters: "xyz", line: (x, y = 0, z = 0) => x + y + z }; // NaN if one of them is, also inside a condition
      const rule = operation in LINES ? elementwise({ ...sum, letters: LINES[operation].letters }) : OPERATIONS[operation];
      changed.set(v, rule(this.values[v], ...operands.map((x) => changed.get(x) ?? results[x])));
    };
    compute(root);
    return changed.get(root)?.map(Number.isNaN);
  }

  // The expression of an element of a value. An index is a number, or a bound index such as "$0", see expressions.js.
  entry(root, i, j, results) {
    let count = 0;
    const scalar = (k) => build(k, 0, 0);
    const width = (k) => this.values[k].shape[1];
    const reduce = (kind, k, i, j, over, body) => ({ kind, k, i, j, over, body });
    const build = (k, i, j) => {
      const { operation, operands, operandShapes, number } = this.values[k];
      const [a, b, c] = operands;
      const S = /^(sparse_|sampled|dense|gather|scatter)/.test(operation) ? this.support(a) : null;
      const isFixed = (...indices) => indices.every((x) => typeof x === "number");
      const added = (terms) =>
        terms.reduce((x, y) => ({ kind: "operation", operation: "add", operands: [x, y] }), terms.shift()) ?? ZERO;
      if (operation === "number") return { kind: "number", number };
      if (k !== root && this.isLeaf(k)) return { kind: "element", k, i, j };
      const bound = (size, of) => ({ name: `$${count++}`, size, ...of });
      const product = (x, y) => ({ kind: "operation", operation: "times", operands: [x, y] });
      const [m, n] = operandShapes[0] ?? [];
      const isOverStored = !(operation in LINES) && !S && operands.some((x) => this.supports[x]);
      switch (isOverStored ? "" : operation) {
        case "transpose":
          return build(a, j, i);
        case "row_repeat":
          return build(a, 0, j);
        case "column_repeat":
          return build(a, i, 0);
        case "full":
          return scalar(a);
        case "copy":
        case "dense":
          return build(operation === "copy" ? a : b, i, j);
        case "diag":
          return build(a, i, i);
        case "stack": // a row in parts, which are rows
          if (!isFixed(i)) break;
          return build(a, Math.floor((i * width(k)) / n), shift(j, (i * width(k)) % n));
        case "unstack":
          if (!isFixed(i, j)) break;
          return build(a, Math.floor((i * width(k) + j) / n), (i * width(k) + j) % n);
        case "gather":
          if (!isFixed(j)) break;
          return added(S.rows.flatMap((row, p) => (row === j ? [build(b, i, S.columns[p])] : [])));
        case "scatter":
          if (!isFixed(j)) break;
          return added(S.columns.flatMap((column, p) => (column === j ? [build(b, i, S.rows[p])] : [])));
        case "one_hot_product": {
          const [rows] = operandShapes[1];
          const label = isFixed(i) ? results[a][i] : NaN;
          if (!isFixed(i)) break;
          return label >= 0 && label < rows ? build(b, label, j) : ZERO;
        }
        case "one_hot_transposed_product":
          if (!isFixed(i)) break;
          return added([...results[a]].flatMap((label, l) => (label === i ? [build(b, l, j)] : [])));
        case "block_product": {
          if (!isFixed(i)) break;
          const l = bound(n);
          const first = Math.floor((i * operandShapes[1][0]) / (m * n)) * n;
          return reduce("sum", k, i, j, [l], product(build(a, i, l.name), build(b, shift(l.name, first), j)));
        }
        case "block_transposed_product": {
          if (!isFixed(i)) break;
          const p = (m * n) / this.values[k].shape[0];
          const l = bound(p);
          const at = shift(l.name, Math.floor(i / n) * p);
          return reduce("sum", k, i, j, [l], product(build(a, at, i % n), build(b, at, j)));
        }
        case "diag_product": {
          if (!isFixed(i)) break;
          const l = bound(n);
          const first = Math.floor((i * operandShapes[1][1]) / (m * width(k))) * width(k);
          return reduce("sum", k, i, j, [l], product(build(a, i, l.name), build(b, l.name, shift(j, first))));
        }
        case "matmul": {
          const l = bound(n);
          return reduce("sum", k, i, j, [l], product(build(a, i, l.name), build(b, l.name, j)));
        }
        case "sparse_product": {
          const l = bound(S.shape[1], { support: S, row: i });
          return reduce("sum", k, i, j, [l], product(build(c, l.name, j), build(b, i, l.name)));
        }
        case "sparse_transposed_product": {
          const l = bound(S.shape[0], { support: S, column: i });
          return reduce("sum", k, i, j, [l], product(build(c, l.name, j), build(b, l.name, i)));
        }
        case "sampled_product": {
          const l = bound(operandShapes[1][1]);
          return reduce("sum", k, i, j, [l], product(build(b, i, l.name), build(c, j, l.name)));
        }
        case "rows_sum":
        case "rows_max": {
          const l = bound(n);
          return reduce(operation.slice(5), k, i, j, [l], build(a, i, l.name));
        }
        case "columns_sum":
        case "columns_max": {
          const l = bound(m);
          return reduce(operation.slice(8), k, i, j, [l], build(a, l.name, j));
        }
        case "elements_sum": {
          const [l, r] = [bound(m), bound(n)];
          return reduce("sum", k, i, j, [l, r], build(a, l.name, r.name));
        }
      }
      if (isOverStored || !(operation in LINES)) return { kind: "opaque", operation, k, i, j };
      return simplified({
        kind: "operation",
        operation,
        k,
        i,
        j,
        operands: operands.map((x) => (isScalar(this.values[x]) ? scalar(x) : build(x, i, j))),
      });
    };
    return build(root, i, j);
  }
}

const ZERO = { kind: "number", number: 0 };
const range = (n) => Array.from({ length: n }, (_, i) => i);

// 1·x is x, and c·1 is c
function simplified(node) {
  if (node.operation !== "scale") return node;
  const [c, x] = node.operands;
  return c.number === 1 ? x : x.number === 1 ? c : node;
}
