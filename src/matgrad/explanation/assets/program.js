// The recorded program of a training step, run in double precision: the equations of the page, operation by operation.
// A value is a Float64Array of its elements, row by row; a scalar has one element. LINES has the elementwise operations: what
// their operands are called, and the function that gives an element; `functions` has the functions in them.

const sizeOf = ({ shape }) => (shape.length ? shape[0] * shape[1] : 1);

const filled = (value, f) => {
  const out = new Float64Array(sizeOf(value));
  for (let i = 0; i < out.length; i++) out[i] = f(i);
  return out;
};
// an elementwise operation, whose line says what an element is; the operand called c is a scalar
const elementwise = ({ letters, line }) => {
  const [a, b, d] = [0, 1, 2].map((k) => (letters[k] === "c" ? 0 : 1));
  return (value, x, y, z) => filled(value, (i) => line(x[a * i], y?.[b * i], z?.[d * i]));
};

// folds the rows or the columns of the m×n operand
const fold = (f, start, ofRows) => (value, x) => {
  const [m, n] = value.operandShapes[0];
  const out = new Float64Array(sizeOf(value)).fill(start);
  for (let i = 0, p = 0; i < m; i++) {
    for (let j = 0; j < n; j++, p++) out[ofRows ? i : j] = f(out[ofRows ? i : j], x[p]);
  }
  return out;
};
const plus = (x, y) => x + y;

const OPERATIONS = {
  ...Object.fromEntries(Object.entries(LINES).map(([name, row]) => [name, elementwise(row)])),
  transpose: (value, x) => {
    const [m, n] = value.shape;
    return filled(value, (p) => x[(p % n) * m + Math.floor(p / n)]);
  },
  row_repeat: (value, x) => filled(value, (p) => x[p % value.shape[1]]),
  column_repeat: (value, x) => filled(value, (p) => x[Math.floor(p / value.shape[1])]),
  full: (value, x) => filled(value, () => x[0]),
  elements_sum: (value, x) => Float64Array.of(x.reduce(plus, 0)),
  columns_sum: fold(plus, 0, false),
  rows_sum: fold(plus, 0, true),
  columns_max: fold(Math.max, -Infinity, false),
  rows_max: fold(Math.max, -Infinity, true),
  matmul: (value, a, b) => {
    const [m, n] = value.shape;
    const k = value.operandShapes[0][1];
    const out = new Float64Array(m * n);
    for (let i = 0; i < m; i++) {
      for (let l = 0; l < k; l++) {
        for (let j = 0; j < n; j++) out[i * n + j] += a[i * k + l] * b[l * n + j];
      }
    }
    return out;
  },
  stack: (value, x) => x,
  unstack: (value, x) => x,
  block_product: (value, a, b) => {
    const [[m, q], [rows, n]] = value.operandShapes;
    const p = (m * q) / rows; // rows of a block
    return total(value, q, (i, j, k) => a[i * q + k] * b[(Math.floor(i / p) * q + k) * n + j]);
  },
  block_transposed_product: (value, a, b) => {
    const [[m, q], [, n]] = value.operandShapes;
    const p = (m * q) / value.shape[0];
    return total(value, p, (i, j, k) => {
      const row = Math.floor(i / q) * p + k;
      return a[row * q + (i % q)] * b[row * n + j];
    });
  },
  diag_product: (value, a, b) => {
    const [[m, n], [, columns]] = value.operandShapes;
    const r = value.shape[1];
    const p = (m * r) / columns;
    return total(value, n, (i, j, k) => a[i * n + k] * b[k * columns + Math.floor(i / p) * r + j]);
  },
  one_hot_product: (value, x, w) => {
    const [rows, n] = value.operandShapes[1];
    return filled(value, (p) => {
      const row = x[Math.floor(p / n)];
      return Number.isInteger(row) && row >= 0 && row < rows ? w[row * n + (p % n)] : 0;
    });
  },
  one_hot_transposed_product: (value, x, g) => {
    const n = value.shape[1];
    return total(value, x.length, (i, j, k) => (x[k] === i ? g[k * n + j] : 0));
  },
  gather: (value, S, x) => selected(value, S.rows, S.columns, x),
  scatter: (value, S, x) => selected(value, S.columns, S.rows, x),
  sparse_product: (value, S, w, b) => products(value, S.rows, S.columns, w, b),
  sparse_transposed_product: (value, S, w, b) => products(value, S.columns, S.rows, w, b),
  sampled_product: (value, S, a, b) => {
    const n = value.operandShapes[1][1];
    return filled(value, (p) => {
      let sum = 0;
      for (let k = 0; k < n; k++) sum += a[S.rows[p] * n + k] * b[S.columns[p] * n + k];
      return sum;
    });
  },
  dense: (value, S, w) => {
    const out = new Float64Array(sizeOf(value));
    w.forEach((x, p) => (out[S.rows[p] * value.shape[1] + S.columns[p]] = x));
    return out;
  },
  uniform_on: (value, S, seed, count) => {
    const D = value.operandShapes[0][1];
    return filled(value, (p) => uniform(S.rows[p] * D + S.columns[p], seed[0], count[0]));
  },
  uniform: (value, seed, count) => filled(value, (p) => uniform(p, seed[0], count[0])),
  identity: (value) => filled(value, (p) => (p % value.shape[1] === Math.floor(p / value.shape[1]) ? 1 : 0)),
  diag: (value, x) => filled(value, (i) => x[i * value.shape[0] + i]),
  Diag: (value, x) => {
    const n = value.shape[0];
    return filled(value, (p) => (p % n === Math.floor(p / n) ? x[p % n] : 0));
  },
};

// Y with elements y_ij = Σ_k term(i, j, k), for k < count
function total(value, count, term) {
  const n = value.shape[1];
  return filled(value, (p) => {
    let sum = 0;
    for (let k = 0; k < count; k++) sum += term(Math.floor(p / n), p % n, k);
    return sum;
  });
}

// Y with elements y_ir = Σ x_ic over the elements of a support, at (r, c)
function selected(value, rows, columns, x) {
  const [m, n] = value.shape;
  const before = value.operandShapes[1][1];
  const out = new Float64Array(m * n);
  for (let i = 0; i < m; i++) rows.forEach((r, p) => (out[i * n + r] += x[i * before + columns[p]]));
  return out;
}

// Y with rows y_r = Σ w_p b_c over the stored elements p, at (r, c)
function products(value, rows, columns, w, b) {
  const n = value.shape[1];
  const out = new Float64Array(sizeOf(value));
  for (let p = 0; p < w.length; p++) {
    for (let j = 0; j < n; j++) out[rows[p] * n + j] += w[p] * b[columns[p] * n + j];
  }
  return out;
}

// a permutation of the integers below 2³² that scatters them, and numbers in [0, 1) from it: see backends/numpy_backend.py
function mix(x) {
  x = Math.imul(x ^ (x >>> 16), 0x7feb352d);
  x = Math.imul(x ^ (x >>> 15), 0x846ca68b);
  return x ^ (x >>> 16);
}
function uniform(position, seed, count) {
  return (mix(mix(position) ^ mix(mix(count | 0) ^ (seed | 0))) >>> 8) / 2 ** 24;
}

// 2/√π ∫₀^x e^(-t²) dt: a series of positive terms near 0, and a continued fraction for 1 - erf(x) elsewhere
function erf(x) {
  if (Number.isNaN(x)) return x;
  const z = Math.abs(x);
  if (z > 6) return Math.sign(x);
  if (z < 2.5) {
    let term = z;
    let sum = z;
    for (let n = 1; term > sum * 1e-17; n++) sum += term *= (2 * z * z) / (2 * n + 1);
    return (Math.sign(x) * 2 * sum * Math.exp(-z * z)) / Math.sqrt(Math.PI);
  }
  let fraction = z;
  for (let n = 60; n > 0; n--) fraction = z + n / 2 / fraction;
  return Math.sign(x) * (1 - Math.exp(-z * z) / fraction / Math.sqrt(Math.PI));
}

const functions = Object.assign(Object.create(Math), { erf });

class Program {
  constructor({ values, outputs, supports, inputs }) {
    this.values = values.map((value) => ({ ...value, operandShapes: value.operands.map((k) => values[k].shape) }));
    this.outputs = outputs;
    this.supports = supports;
    this.inputs = Object.fromEntries(Object.entries(inputs).map(([name, x]) => [name, Float64Array.from([x].flat(2))]));
    for (const { operation } of values) {
      if (!["input", "number", "support"].includes(operation) && !(operation in OPERATIONS)) {
        throw new Error(`this page cannot compute the operation ${operation}`);
      }
    }
  }

  // all values, for given inputs
  run(inputs) {
    const results = [];
    for (const value of this.values) results.push(this.#result(value, inputs, results));
    return results;
  }

  #result(value, inputs, results) {
    if (value.operation === "input") return inputs[value.name];
    if (value.operation === "support") return this.supports[value.name];
    if (value.operation === "number") return Float64Array.of(value.number);
    return OPERATIONS[value.operation](value, ...value.operands.map((k) => results[k]));
  }

  // the inputs of the next step: the outputs of this one, and the same examples
  next(inputs, results) {
    const state = Object.entries(this.outputs).map(([name, k]) => [name, results[k]]);
    return { ...inputs, ...Object.fromEntries(state) };
  }
}
