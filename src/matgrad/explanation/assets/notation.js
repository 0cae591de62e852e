// Expressions as MathML, with symbols or with numbers.

const LETTERS = { max: "m", sum: "s", others: [..."uvpqrhgfdacn"] };
const SHOWN = 6; // terms of a sum; of a longer one, the first and the last
const DEEPEST = 3; // operations nested in a factor of a term that is written out, not only as its value
const TINY = 1e-300; // what is added to a number so that it is not 0
const SCRIPTED = new Set(["mi", "mtext", "mn", "msub", "msup", "msubsup"]);
const PRODUCTS = new Set(["times", "hadamard", "scale"]);
const SUM = 1;
const PRODUCT = 2;
const UNARY = 3;
const ATOM = 4;

const tag = (name, ...content) => `<${name}>${content.join("")}</${name}>`;
const row = (...content) => tag("mrow", ...content);
const operator = (x) => tag("mo", x);
const infix = (x) => `<mo form="infix">${x}</mo>`;
const THIN = '<mspace width="0.16em"></mspace>';

// about four significant digits
function numberText(x) {
  if (!Number.isFinite(x)) return Number.isNaN(x) ? "NaN" : x < 0 ? "−∞" : "∞";
  const size = Math.abs(x);
  if (Number.isInteger(x) && size < 1e10) return `${x}`.replace("-", "−");
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return x.toExponential(2).replaceAll("-", "−").replace("+", "");
  return x.toFixed(Math.max(0, 3 - Math.max(0, Math.floor(Math.log10(size))))).replace("-", "−");
}

function numberMath(x) {
  if (x > 0 && x < TINY) return { text: tag("mtext", "tiny"), level: ATOM };
  const [mantissa, exponent] = numberText(x).split("e");
  const sign = mantissa.startsWith("−") ? operator("−") : "";
  const digits = tag("mn", mantissa.replace("−", ""));
  const power = exponent ? `${operator("·")}${tag("msup", tag("mn", "10"), tag("mn", exponent))}` : "";
  return { text: row(sign, digits, power), level: sign ? SUM : exponent ? PRODUCT : ATOM };
}

const signed = (x, text, level) => (x < 0 ? { text: row(operator("−"), text), level: SUM } : { text, level });

// a number of the equation itself, such as 0.9 or 10⁻⁸, without zeros at its end
function constantMath(x) {
  const size = Math.abs(x);
  const power = Math.log10(size);
  if (size >= TINY && size < 1e-3 && Number.isInteger(power)) {
    return signed(x, tag("msup", tag("mn", "10"), tag("mn", `−${-power}`)), UNARY);
  }
  if (size !== 0 && (size < 1e-4 || size >= 1e6)) return numberMath(x);
  return signed(x, tag("mn", `${Number(size.toPrecision(6))}`), ATOM);
}

const OPENING = '<mo stretchy="false">(</mo>';
const CLOSING = '<mo stretchy="false">)</mo>';
const parenthesized = (text) => row(OPENING, text, CLOSING);

// The parts of a symbol: what precedes its letter, the letter, and what is below and above it but the layer's number.
function partsOf(math) {
  const nodes = symbolNodes(math);
  const last = nodes.pop();
  const prefix = htmlOf(nodes);
  const [base, second, third] = last.children.length ? last.children : [last];
  const name = last.tagName.toLowerCase();
  if (!SCRIPTED.has(name)) return { prefix, base: parenthesized(last.outerHTML) };
  const below = name === "msup" ? undefined : second;
  const above = name === "msup" ? second : third;
  const number = below && /^(?:(.*),)?(\d+(?:\.\d+)*)$/.exec(below.textContent);
  const isState = below?.querySelector("msub"); // as in Δ with the parameter W₁ below it
  const lower = number ? number[1] && tag("mi", number[1]) : isState ? "" : below?.outerHTML;
  return { prefix, base: lowercase(base), lower: lower ?? "", above: above?.outerHTML ?? "" };
}

const htmlOf = (nodes) => nodes.map((x) => x.outerHTML).join("");

function lowercase(node) {
  return /^[A-Z]$/.test(node.textContent) ? tag("mi", node.textContent.toLowerCase()) : node.outerHTML;
}

// the elements that make up a symbol
function symbolNodes(math) {
  let nodes = [...parsed(math).children];
  while (nodes.length === 1 && nodes[0].matches("math, mrow, mstyle")) nodes = [...nodes[0].children];
  return nodes;
}

function parsed(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content;
}

class Notation {
  // `symbolOf(k)`: the MathML of a value's symbol; `colors`: the class of each value that has a colour
  constructor(arithmetic, symbolOf, colors) {
    Object.assign(this, { arithmetic, colors, names: new Map(), results: null });
    const found = [...colors.keys()].map((k) => [k, partsOf(symbolOf(k))]);
    const keys = found.map(([, parts]) => JSON.stringify(parts));
    const isUnique = (p) => keys.indexOf(keys[p]) === keys.lastIndexOf(keys[p]);
    const whole = (k) => ({ prefix: "", base: parenthesized(htmlOf(symbolNodes(symbolOf(k)))) });
    this.parts = new Map(found.map(([k, parts], p) => [k, isUnique(p) ? parts : whole(k)]));
    this.letters = new Set([...this.parts.values()].map((x) => parsed(x.base).textContent));
    this.comma = [...colors.keys()].some((k) => Math.max(...arithmetic.shape(k)) > 9) ? operator(",") : "";
  }

  colored(k, text) {
    return this.colors.has(k) ? `<mrow class="${this.colors.get(k)}">${text}</mrow>` : text;
  }

  // the indices of an element, of a vector only one, with the names of bound ones
  #indices({ k, i, j }, names) {
    const [m, n] = this.arithmetic.shape(k);
    const index = (x) => {
      if (typeof x !== "string") return tag("mn", `${x + 1}`);
      const [name, plus] = parted(x);
      return tag("mi", names.get(name)) + (plus ? operator("+") + tag("mn", `${plus}`) : "");
    };
    return [m > 1 ? index(i) : "", n > 1 ? index(j) : ""].filter(Boolean).join(this.comma);
  }

  #indexed(text, node, names) {
    const indices = this.#indices(node, names);
    return indices ? tag("msub", text, row(indices)) : text;
  }

  // an element such as z₂₃
  element(k, i, j, names = new Map()) {
    const own = this.#indices({ k, i, j }, names);
    const { prefix, base, lower, above } = this.parts.get(k);
    const below = [...(lower ? [lower, own ? operator(",") : ""] : []), own].join("");
    const scripts = [below && row(below), above].filter(Boolean);
    const name = below && above ? "msubsup" : below ? "msub" : "msup";
    return this.colored(k, prefix + (scripts.length ? tag(name, base, ...scripts) : base));
  }

  // The equations of one element as lines of MathML: symbols, numbers and the result.
  lines(results, root, i, j) {
    this.results = results;
    const found = statements(this.arithmetic.entry(root, i, j, results));
    this.names = new Map();
    const free = LETTERS.others.filter((x) => !this.letters.has(x));
    const letter = ({ kind }) => {
      const own = LETTERS[kind];
      const isFree = own && !this.letters.has(own) && ![...this.names.values()].includes(own);
      return isFree ? own : free.shift() ?? "t";
    };
    return found.map(({ node, key }, p) => {
      const isLast = p === found.length - 1;
      this.root = node;
      const symbol = isLast ? this.element(root, i, j) : tag("mi", letter(node));
      const expression = this.write(node, { names: new Map() }).text;
      const numbers = this.terms(node);
      if (!isLast) this.names.set(key, parsed(symbol).textContent);
      return { symbol, expression, numbers, result: this.#number(node).text, isLast };
    });
  }

  // the terms of a sum with numbers, each with its sign: lines can be broken between them
  terms(root) {
    const found = [];
    const visit = (node, sign, environment) => {
      const operation = this.#isNamed(node) ? "" : node.operation ?? node.kind;
      const [x, y] = node.operands ?? [];
      if (operation === "add" || operation === "subtract") {
        visit(x, sign, environment);
        visit(y, operation === "add" ? sign : -sign, environment);
      } else if (operation === "negative") {
        visit(x, -sign, environment);
      } else if (operation === "sum") {
        for (const e of elided([...assignments(node.over, environment)])) {
          if (e === null) found.push({ sign, text: operator("⋯"), level: ATOM });
          else visit(node.body, sign, e);
        }
      } else if (operation === "divide" && this.#hasSum(x)) {
        enclosed(x, sign, "", `${operator("/")}${this.operand(y, ATOM, { environment })}`);
      } else if (operation === "scale" && this.#hasSum(y)) {
        enclosed(y, sign, `${this.operand(x, ATOM, { environment })}${operator("·")}`, "");
      } else {
        found.push({ sign, ...this.write(node, { environment }) });
      }
    };
    // a sum in parentheses, with what comes before and after them
    const enclosed = (node, sign, before, after) => {
      const start = found.length;
      visit(node, 1, {});
      found[start] = { ...found[start], outer: sign, before: `${before}${OPENING}` };
      found.at(-1).after = `${CLOSING}${after}`;
    };
    visit(root, 1, {});
    return found.map((term, p) => this.#term(term, p === 0));
  }

  // one term with its sign; `outer` is that of parentheses which open before it
  #term({ sign, text, level, outer, before = "", after = "" }, isFirst) {
    const between = isFirst ? (x) => (x < 0 ? operator("−") : "") : (x) => infix(x < 0 ? "−" : "+");
    const signs = outer === undefined ? [between(sign)] : [between(outer), before, sign < 0 ? operator("−") : ""];
    const isBare = isFirst && sign > 0 && outer === undefined;
    return row(...signs, level === SUM && !isBare ? parenthesized(text) : text, after);
  }

  // whether an expression is a sum over an index, or has one outside of other operations
  #hasSum(node) {
    if (this.#isNamed(node)) return false;
    if (node.kind === "sum") return true;
    return ["add", "subtract", "negative"].includes(node.operation) && node.operands.some((x) => this.#hasSum(x));
  }

  // MathML of an expression and how tightly it binds: with symbols, or, if there is an environment, with numbers
  write(node, context) {
    const { environment } = context;
    if (this.#isNamed(node)) {
      return environment ? this.#number(node) : { text: tag("mi", this.names.get(keyOf(node))), level: ATOM };
    }
    if (node.kind === "number") return constantMath(node.number);
    if (node.kind === "element") {
      if (!environment) return { text: this.element(node.k, node.i, node.j, context.names), level: ATOM };
      const { text, level } = this.#number(node, environment);
      return { text: this.colored(node.k, text), level };
    }
    if (node.kind === "opaque") {
      if (environment) return this.#number(node, environment);
      const name = tag("mtext", node.operation.replace("_on", ""));
      return { text: this.#indexed(name, node, context.names), level: ATOM };
    }
    const isFactor = !PRODUCTS.has(node.operation) && environment && Object.keys(environment).length > 0;
    if (isFactor && this.#depth(node) > DEEPEST) return this.#number(node, environment);
    if (node.over) return environment ? this.#expanded(node, context) : this.#reduced(node, context);
    return this.#operation(node, context);
  }

  #number(node, environment = {}) {
    return numberMath(evaluate(node, this.arithmetic, this.results, environment));
  }

  #depth(node) {
    return this.#isNamed(node) ? 1 : 1 + Math.max(0, ...childrenOf(node).map((x) => this.#depth(x)));
  }

  // whether a part of the expression has a name of its own
  #isNamed(node) {
    return node !== this.root && this.names.has(keyOf(node));
  }

  // Σₖ or maxₖ of a body
  #reduced({ kind, over, body }, { names }) {
    const inner = new Map(names);
    for (const x of over) inner.set(x.name, "kljprs"[inner.size]);
    const indices = over.map((x) => tag("mi", inner.get(x.name))).join("");
    const sign = kind === "sum" ? '<mo movablelimits="false">∑</mo>' : '<mi>max</mi>';
    const text = this.operand(body, kind === "sum" ? PRODUCT : UNARY, { names: inner });
    return { text: row(tag("munder", sign, row(indices)), THIN, text), level: kind === "sum" ? PRODUCT : UNARY };
  }

  #expanded(node, { environment }) {
    if (Object.keys(environment).length > 0) return this.#number(node, environment);
    const all = elided([...assignments(node.over, environment)]);
    const terms = all.map((x) => x && this.write(node.body, { environment: x }));
    if (node.kind === "max") {
      const list = terms.map((x) => x?.text ?? operator("…")).join(operator(","));
      return { text: row(tag("mi", "max"), parenthesized(list)), level: ATOM };
    }
    const sum = terms.map((x) => (x === null ? operator("⋯") : x.level === SUM ? parenthesized(x.text) : x.text));
    return { text: row(sum.join(operator("+"))), level: terms.length > 1 ? SUM : terms[0]?.level ?? ATOM };
  }

  operand(node, level, context) {
    const found = this.write(node, context);
    return found.level >= level ? found.text : parenthesized(found.text);
  }

  #operation({ operation, operands }, context) {
    const [x, y] = operands;
    const at = (node, level) => this.operand(node, level, context);
    const call = (name, x) => ({ text: row(tag("mi", name), operator("&#x2061;"), parenthesized(x)), level: UNARY });
    switch (operation) {
      case "add":
        return { text: row(at(x, SUM), operator("+"), at(y, PRODUCT)), level: SUM };
      case "subtract":
        return { text: row(at(x, SUM), operator("−"), at(y, PRODUCT)), level: SUM };
      case "negative":
        return { text: row(operator("−"), at(x, PRODUCT)), level: SUM };
      case "times":
      case "hadamard":
      case "scale": {
        if (y.operation === "reciprocal" && !this.#isNamed(y)) {
          return { text: tag("mfrac", at(x, SUM), at(y.operands[0], SUM)), level: PRODUCT };
        }
        const isSymbolic = !context.environment && [x, y].every((node) => node.kind !== "number");
        const factors = [at(x, PRODUCT), at(y, y.over ? ATOM : PRODUCT)];
        return { text: row(factors.join(isSymbolic ? THIN : operator("·"))), level: PRODUCT };
      }
      case "divide":
        return { text: tag("mfrac", at(x, SUM), at(y, SUM)), level: PRODUCT };
      case "reciprocal":
        return { text: tag("mfrac", tag("mn", "1"), at(x, SUM)), level: PRODUCT };
      case "power":
        return { text: tag("msup", at(x, ATOM), at(y, SUM)), level: UNARY };
      case "step":
        return { text: row(operator("["), at(x, SUM), operator("≥"), tag("mn", "0"), operator("]")), level: ATOM };
      default: {
        const { formula } = LINES[operation];
        return formula ? { text: formula((level) => at(x, level)), level: UNARY } : call(operation, at(x, SUM));
      }
    }
  }
}

// the terms that are written out of a long list, with null for those that are not
function elided(list) {
  return list.length <= SHOWN ? list : [...list.slice(0, SHOWN - 3), null, ...list.slice(-2)];
}
