// The page: the network, the steps, the current equation with its matrices, and training.

const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const PHASES = {
  feedforward: ["Feedforward", "→"],
  loss: ["Loss", ""],
  backpropagate: ["Backpropagation", "←"],
  optimize: ["Optimization", ""],
};
const PALETTE = 6; // classes c1 … c6 of operands; the result is c0
const PAUSE = 2400; // milliseconds between steps that are played
const LARGE = 1.25; // of matrices that fit in one line
const GAP = 30; // pixels between matrices
const TALLEST = 190; // pixels of an equation of several lines
const MOST = 5000; // losses that are kept

const program = new Program(data);
const { symbols } = data;
const arithmetic = new Arithmetic(program, new Set(data.steps.map((x) => x.value)));

const state = { step: 0, inputs: program.inputs, results: null, losses: [], pinned: [0, 0], timer: null };
let views = [];
let notation = null;

const nameOf = (k) => program.values[k].name ?? `value ${k}`;
const symbolOf = (k) => symbols[k] ?? `<math><mtext>${nameOf(k).replace(/[<&]/g, "")}</mtext></math>`;
const textOf = (html) => parsed(html).textContent;

// -- computing ---------------------------------------------------------------------------------
function compute() {
  state.results = program.run(state.inputs);
}

function takeSteps(count) {
  for (let i = 0; i < count; i++) {
    state.inputs = program.next(state.inputs, state.results);
    compute();
    state.losses.push(state.results[data.loss][0]);
  }
  state.losses = state.losses.slice(-MOST);
  state.count = (state.count ?? 0) + count;
  refresh();
  say(`After ${state.count} steps the loss is ${numberText(state.losses.at(-1))}`);
}

function reset() {
  state.inputs = { ...program.inputs, eta: state.inputs.eta };
  compute();
  state.losses = [state.results[data.loss][0]];
  state.count = 0;
  refresh();
}

function setRate(eta) {
  state.inputs = { ...state.inputs, eta: Float64Array.of(eta) };
  compute();
  refresh();
}

// -- the current step --------------------------------------------------------------------------
function show(step) {
  state.step = Math.min(data.steps.length - 1, Math.max(0, step));
  const current = data.steps[state.step];
  const operands = arithmetic.operands(current.value);
  const colors = new Map([[current.value, "c0"]]);
  operands.forEach(({ value }, p) => colors.set(value, `c${(p % PALETTE) + 1}`));
  notation = new Notation(arithmetic, state.results, Object.fromEntries([...colors.keys()].map((k) => [k, symbolOf(k)])), colors);
  views = [viewOf(current.value, false, "c0"), ...operands.map((x) => viewOf(x.value, x.isTransposed, colors.get(x.value)))];
  $("matrices").replaceChildren(...views.map((x) => x.figure));
  const [m, n] = arithmetic.shape(current.value);
  state.pinned = [Math.min(state.pinned[0], m - 1), Math.min(state.pinned[1], n - 1)];
  const support = arithmetic.supports[current.value];
  if (element(current.value, ...state.pinned) === undefined) state.pinned = [support.rows[0], support.columns[0]];
  views[0].cursor = state.pinned;
  showEquation(current, colors);
  showNetwork(current);
  layout();
  say(`Step ${state.step + 1} of ${data.steps.length}: ${current.text}`);
}

function viewOf(k, isTransposed, color) {
  const [m, n] = arithmetic.shape(k);
  const symbol = isTransposed && m * n > 1 ? transposed(symbolOf(k)) : symbolOf(k);
  const view = new MatrixView({
    name: textOf(symbol),
    symbol,
    shape: isTransposed ? [n, m] : [m, n],
    at: (i, j) => element(k, ...(isTransposed ? [j, i] : [i, j])),
    color,
    events: { point, pin, leave: () => highlight(...state.pinned, false), resize: layout },
  });
  Object.assign(view, { value: k, isTransposed, stored: arithmetic.supports[k]?.rows.length });
  const origin = data.steps.findIndex((x) => x.value === k);
  if (color !== "c0" && origin >= 0) view.figure.querySelector(".symbol").replaceWith(jump(symbol, origin, color));
  return view;
}

// a button that shows the step in which an operand is computed
function jump(symbol, origin, color) {
  const button = document.createElement("button");
  Object.assign(button, { type: "button", className: `symbol ${color}`, innerHTML: symbol, title: "Show how it is computed" });
  button.setAttribute("aria-label", `${textOf(symbol)}: show how it is computed`);
  button.addEventListener("click", () => go(origin));
  return button;
}

function transposed(symbol) {
  const inner = symbolNodes(symbol).map((x) => x.outerHTML).join("");
  return `<math><msup><mrow>${inner}</mrow><mo>⊤</mo></msup></math>`;
}

function element(k, i, j) {
  const p = arithmetic.position(k, i, j);
  return p === undefined ? undefined : state.results[k][p];
}

function showEquation(current, colors) {
  const [phase, arrow] = PHASES[current.phase];
  const layer = current.layer ? `layer ${current.layer}, ${current.class}` : current.class;
  $("where").innerHTML = `<b>${phase} ${arrow}</b> <span></span> <span class="count">${state.step + 1} / ${data.steps.length}</span>`;
  $("where").children[1].textContent = layer;
  $("equation").innerHTML = current.numbered;
  for (const [k, color] of [...colors].sort(([a], [b]) => textOf(symbolOf(b)).length - textOf(symbolOf(a)).length)) {
    paint($("equation"), symbolNodes(symbolOf(k)), color);
  }
  $("own").innerHTML = current.equation;
  $("source").textContent = current.source;
  $("location").textContent = current.location;
  showVerdict(current.verdict);
}

// give a symbol in an equation its colour: a run of siblings that reads like it, whatever the exponent of the last
function paint(root, nodes, color) {
  const text = (node) => (node.tagName.toLowerCase() === "msup" ? node.children[0].textContent : withoutExponent(node));
  const wanted = nodes.map((x) => x.textContent);
  for (const first of root.querySelectorAll("*")) {
    const run = [first];
    while (run.length < wanted.length && run.at(-1)?.nextElementSibling) run.push(run.at(-1).nextElementSibling);
    const matches = run.length === wanted.length && run.every((x, p) => [x.textContent, text(x)].includes(wanted[p]));
    const isFree = run.every((x) => !x.closest(".painted") && !x.querySelector(".painted"));
    const isSymbol = !["math", "mrow", "mo"].includes(first.tagName.toLowerCase());
    if (matches && isFree && isSymbol) run.forEach((x) => x.classList.add("painted", color));
  }
}

const withoutExponent = (node) =>
  node.tagName.toLowerCase() === "msubsup" ? node.children[0].textContent + node.children[1].textContent : node.textContent;

function showVerdict({ ok, summary, details }) {
  const kind = ok === null ? "unknown" : ok ? "right" : "wrong";
  const box = document.createElement("details");
  box.className = `verdict ${kind} ${details.length ? "" : "plain"}`;
  box.innerHTML = `<summary><b>${{ right: "✓", wrong: "✗", unknown: "–" }[kind]}</b> <span></span></summary><ul></ul>`;
  box.querySelector("span").textContent = summary;
  box.querySelector("ul").append(...details.map((x) => Object.assign(document.createElement("li"), { textContent: x })));
  box.open = ok === false || innerWidth > 1100;
  $("verdict").replaceChildren(box);
}

// make the equation as large as it fits, down to half the size; what is still too wide can be scrolled
function fitEquation() {
  const box = $("equation");
  box.style.fontSize = "";
  const ratio = Math.min(box.clientWidth / box.scrollWidth, TALLEST / box.scrollHeight);
  if (ratio < 1) box.style.fontSize = `${parseFloat(getComputedStyle(box).fontSize) * Math.max(0.5, ratio * 0.99)}px`;
}

function layout() {
  fitEquation();
  const room = $("matrices").clientWidth;
  for (const view of views) view.measure();
  const isWide = views.reduce((sum, x) => sum + x.widthOfNumbers(LARGE) + GAP, 0) <= room;
  for (const view of views) view.layout(room, isWide ? LARGE : 1);
  highlight(...state.pinned, false);
}

// new numbers in everything that is shown
function refresh() {
  notation.results = state.results;
  layout();
  showTraining();
}

// -- pointing ----------------------------------------------------------------------------------
function point(view, i, j) {
  if (view === views[0]) highlight(i, j, true);
  else readOut(view, i, j);
}

function pin(view, i, j) {
  if (view === views[0]) {
    state.pinned = [i, j];
    highlight(i, j, true);
  } else {
    readOut(view, i, j);
  }
  const x = view.at(i, j);
  const place = `${view.name} row ${i + 1} column ${j + 1}`;
  say(view === views[0] ? spoken(place, x) : `${place}: ${x === undefined ? "not stored" : numberText(x)}`);
}

const spoken = (place, x) => (x === undefined ? `${place}: not stored` : `${place}: ${$("arithmetic").textContent.replace(/\s+/g, " ")}`);

// mark an entry of the result, the entries that it is computed from, and write the arithmetic
function highlight(i, j, isFading) {
  const [result, ...operands] = views;
  const isStored = result.at(i, j) !== undefined;
  const masks = isStored ? arithmetic.sources(result.value, i, j) : new Map();
  result.mark([[i, j]], isFading);
  for (const view of operands) view.mark(cellsOf(view, masks.get(view.value)), isFading);
  writeArithmetic(result.value, i, j, isStored);
}

// the cells of the elements in a mask
function cellsOf({ value, isTransposed }, mask) {
  const cells = [];
  mask?.forEach((isMarked, p) => isMarked && cells.push(arithmetic.place(value, p)));
  return isTransposed ? cells.map(([i, j]) => [j, i]) : cells;
}

// an entry of an operand: its value
function readOut(view, i, j) {
  for (const other of views) other.mark(other === view ? [[i, j]] : [], false);
  const [row, column] = view.isTransposed ? [j, i] : [i, j];
  const x = element(view.value, row, column);
  const value = x === undefined ? "<mtext>not stored: 0</mtext>" : numberMath(x).text;
  $("arithmetic").innerHTML = `<div class="line">${inMath(notation.element(view.value, row, column))}<span class="terms">${inMath("<mo>=</mo>", value)}</span></div>`;
}

const inMath = (...content) => `<math displaystyle="true">${content.join("")}</math>`;

function writeArithmetic(k, i, j, isStored) {
  if (!isStored) {
    const symbol = notation.element(k, i, j);
    $("arithmetic").innerHTML = `<div class="line">${inMath(symbol)}<span class="terms">is not stored: it is 0 and stays 0</span></div>`;
    return;
  }
  const lines = notation.lines(k, i, j).map(({ symbol, symbols: expression, numbers, result, isLast }) => {
    const isPlain = numbers.length === 1 && textOf(numbers[0]) === textOf(result);
    const terms = isPlain ? "" : `<b class="is">=</b>${numbers.map((x) => inMath(x)).join(" ")} `;
    return `<div class="line ${isLast ? "whole" : "part"}">${inMath(symbol)} <span class="terms"><b class="is">=</b>${inMath(expression)}</span>
      <span class="terms">${terms}<span class="result"><b class="is">=</b>${inMath(result)}</span></span></div>`;
  });
  $("arithmetic").innerHTML = lines.join("");
}

// -- the network and the list of equations -----------------------------------------------------
const topLayer = (name) => (name ? name.split(".")[0] : null);

function makeNetwork() {
  const { loss, optimizer, examples } = data.network;
  const layers = data.network.layers.filter((x) => !x.name.includes(".")); // without the parts of layers
  $("facts").textContent = [`${examples} examples`, `${layers.length} layers`, loss, optimizer].join(" · ");
  const nodes = layers.map((layer) => {
    const density = layer.density < 1 ? ` · ${+(100 * layer.density).toFixed(1)} %` : "";
    return layerNode(layer.name, layer.specification, `${layer.inputs} → ${layer.outputs}${density}`, layer.definition);
  });
  $("layers").replaceChildren(...nodes, layerNode("", loss.replace(/Loss$/, ""), "loss", loss));
}

function layerNode(name, title, sizes, definition) {
  const node = document.createElement("li");
  const steps = data.steps.map((x, p) => ({ ...x, p })).filter((x) => (topLayer(x.layer) ?? "") === name);
  node.dataset.layer = name;
  node.innerHTML = `<button type="button"><span class="number">${name}</span><span class="title"></span><span class="sizes"></span>
    <span class="dots" aria-hidden="true"></span></button>`;
  node.querySelector(".title").textContent = title;
  node.querySelector(".sizes").textContent = sizes;
  node.firstChild.title = definition;
  for (const phase of Object.keys(PHASES)) {
    const own = steps.filter((x) => x.phase === phase);
    if (own.length) {
      const lane = Object.assign(document.createElement("span"), { className: "lane" });
      const ordered = phase === "backpropagate" ? own.toReversed() : own;
      lane.append(...ordered.map((x) => Object.assign(document.createElement("i"), { id: `dot-${x.p}` })));
      node.querySelector(".dots").append(lane);
    }
  }
  node.firstChild.addEventListener("click", () => {
    const phase = data.steps[state.step].phase;
    go((steps.find((x) => x.phase === phase) ?? steps[0])?.p ?? state.step);
  });
  return node;
}

function showNetwork(current) {
  for (const node of $("layers").children) {
    const isCurrent = node.dataset.layer === (topLayer(current.layer) ?? "");
    node.classList.toggle("current", isCurrent);
    if (isCurrent) scrollInside($("layers"), node);
  }
  for (const dot of document.querySelectorAll(".dots i")) {
    const p = Number(dot.id.slice(4));
    dot.className = p < state.step ? "done" : p === state.step ? "now" : "";
  }
  for (const button of $("steps").querySelectorAll("button")) {
    const isCurrent = Number(button.dataset.step) === state.step;
    if (isCurrent) button.setAttribute("aria-current", "step");
    else button.removeAttribute("aria-current");
    if (isCurrent) scrollInside($("steps"), button);
  }
}

// scroll a box, and only that, so far that something in it is seen
function scrollInside(box, item) {
  const [outer, inner] = [box, item].map((x) => x.getBoundingClientRect());
  box.scrollTop += Math.min(0, inner.top - outer.top - 40) + Math.max(0, inner.bottom - outer.bottom + 40);
  box.scrollLeft += Math.min(0, inner.left - outer.left - 20) + Math.max(0, inner.right - outer.right + 20);
}

function makeSteps() {
  for (const [phase, [title]] of Object.entries(PHASES)) {
    const own = data.steps.map((x, p) => ({ ...x, p })).filter((x) => x.phase === phase);
    if (!own.length) continue;
    const heading = Object.assign(document.createElement("h2"), { textContent: title });
    const list = document.createElement("ol");
    list.append(...own.map(stepItem));
    $("steps").append(heading, list);
  }
}

function stepItem({ numbered, text, p }) {
  const item = document.createElement("li");
  item.innerHTML = `<button type="button" data-step="${p}">${lastLine(numbered)}</button>`;
  item.firstChild.setAttribute("aria-label", text);
  item.firstChild.addEventListener("click", () => go(p));
  return item;
}

// of several lines that are aligned, the last
function lastLine(math) {
  const row = [...parsed(math).querySelectorAll("math > mrow > mtable > mtr, math > mtable > mtr")].at(-1);
  return row ? `<math>${[...row.children].map((x) => x.innerHTML).join("")}</math>` : math;
}

// -- training ----------------------------------------------------------------------------------
function showTraining() {
  const eta = state.inputs.eta[0];
  $("loss-name").textContent = state.count ? `loss after ${state.count} steps` : "loss";
  $("loss").textContent = numberText(state.losses.at(-1));
  $("rate").value = Math.log10(eta);
  $("rate-value").textContent = eta.toPrecision(2).replace(/\.?0+$/, "") || "0";
  $("rate").setAttribute("aria-valuetext", $("rate-value").textContent);
  $("curve").innerHTML = curve(state.losses);
}

// the loss by step
function curve(losses) {
  const finite = losses.filter(Number.isFinite);
  const [top, bottom] = [Math.max(...finite), Math.min(0, ...finite)];
  const [width, height] = [240, 104];
  const last = Math.max(10, losses.length - 1);
  const x = (i) => 4 + (i / last) * (width - 46);
  const y = (loss) => 8 + (1 - (loss - bottom) / (top - bottom || 1)) * (height - 16);
  const points = losses.map((loss, i) => (Number.isFinite(loss) ? `${x(i).toFixed(1)},${y(loss).toFixed(1)}` : "")).filter(Boolean);
  const [endX, endY] = (points.at(-1) ?? "4,8").split(",");
  const label = `Loss over ${losses.length - 1} steps, from ${numberText(losses[0])} to ${numberText(losses.at(-1))}`;
  return `<svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${label}">
    <text x="${width - 4}" y="${y(top) + 3}">${numberText(top)}</text><text x="${width - 4}" y="${y(bottom) - 4}">${numberText(bottom)}</text>
    <line class="axis" x1="4" x2="${width - 4}" y1="${y(bottom)}" y2="${y(bottom)}"></line>
    <polyline points="${points.join(" ")}"></polyline><circle cx="${endX}" cy="${endY}" r="3.5"></circle></svg>`;
}

// -- controls ----------------------------------------------------------------------------------
function say(text) {
  $("live").textContent = text;
}

function go(step) {
  show(step);
  showTraining();
}

function play() {
  const isPlaying = state.timer === null;
  if (isPlaying) state.timer = setInterval(advance, PAUSE);
  else clearInterval(state.timer);
  if (!isPlaying) state.timer = null;
  $("play").setAttribute("aria-pressed", `${isPlaying}`);
  $("play").setAttribute("aria-label", isPlaying ? "Pause" : "Play");
  $("play").textContent = isPlaying ? "❚❚" : "▶";
}

// the next step; after the last one, the optimizer has made its step and the next batch begins
function advance() {
  if (state.step < data.steps.length - 1) return go(state.step + 1);
  takeSteps(1);
  go(0);
}

function toggleTheme() {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  redraw();
}

function redraw() {
  layout();
  const ink = $("scale").getContext("2d");
  for (let x = 0; x < 160; x++) {
    ink.fillStyle = `rgb(${heat(x / 80 - 1)})`;
    ink.fillRect(x, 0, 1, 8);
  }
}

const KEYS = {
  ArrowLeft: () => go(state.step - 1),
  ArrowRight: () => go(state.step + 1),
  Home: () => go(0),
  End: () => go(data.steps.length - 1),
  p: play,
  s: () => takeSteps(1),
  d: toggleTheme,
};

function listen() {
  const clicks = {
    previous: KEYS.ArrowLeft,
    next: KEYS.ArrowRight,
    play,
    step: KEYS.s,
    ten: () => takeSteps(10),
    reset,
    theme: toggleTheme,
  };
  for (const [id, action] of Object.entries(clicks)) $(id).addEventListener("click", action);
  $("rate").addEventListener("input", () => setRate(10 ** Number($("rate").value)));
  addEventListener("keydown", (event) => {
    const action = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input")) return;
    event.preventDefault();
    action();
  });
  new ResizeObserver(redraw).observe($("matrices"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}

makeNetwork();
makeSteps();
reset0();
listen();
document.fonts.ready.then(redraw);

// the first computation, before there is anything to refresh
function reset0() {
  compute();
  state.losses = [state.results[data.loss][0]];
  state.count = 0;
  go(0);
}

// for tests and the curious
window.matgrad = {
  data,
  program,
  arithmetic,
  state,
  go,
  takeSteps,
  reset,
  setRate,
  assignments: (over, environment) => [...assignments(over, environment)],
  cell: (k) => [views[k].width, views[k].height, MARGIN],
  marked: () => views.map((view) => view.marked),
  values: () => data.steps.map((x) => Array.from(state.results[x.value])),
  current: () => Object.fromEntries(Object.entries(state.inputs).map(([name, x]) => [name, Array.from(x)])),
};
