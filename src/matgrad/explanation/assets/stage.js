// The current equation: its symbols and matrices in the same colours, its source, and the arithmetic of an entry.

const PALETTE = 6; // classes c1 … c6 of operands; the result is c0
const LARGE = 1.25; // of matrices that fit in one line
const GAP = 30; // pixels between matrices
const TALLEST = 12; // rem of an equation of several lines

let views = []; // of the result and of the operands
let notation = null;

function showStage(current) {
  const operands = arithmetic.operands(current.value);
  const colors = new Map([[current.value, "c0"]]);
  operands.forEach(({ value }, p) => colors.set(value, `c${(p % PALETTE) + 1}`));
  notation = new Notation(arithmetic, symbolOf, colors);
  views = [{ value: current.value, isTransposed: false }, ...operands].map((x) => viewOf(x, colors.get(x.value)));
  $("matrices").replaceChildren(...views.map((x) => x.figure), $("panel"));
  choose(current.value);
  showEquation(current, colors);
  layout();
}

// keep the chosen entry if the result has it
function choose(k) {
  const size = arithmetic.shape(k);
  state.pinned = state.pinned.map((i, side) => Math.min(i, size[side] - 1));
  if (element(k, ...state.pinned) === undefined) state.pinned = arithmetic.place(k, 0);
  views[0].cursor = state.pinned;
}

function viewOf({ value, isTransposed }, color) {
  const [m, n] = arithmetic.shape(value);
  const symbol = isTransposed && m * n > 1 ? transposed(symbolOf(value)) : symbolOf(value);
  const view = new MatrixView({
    name: textOf(symbol),
    symbol,
    shape: isTransposed ? [n, m] : [m, n],
    at: (i, j) => element(value, ...(isTransposed ? [j, i] : [i, j])),
    stored: arithmetic.supports[value]?.rows.length,
    color,
    events: { point, pin, leave: () => highlight(...state.pinned, false), resize: layout },
  });
  const origin = steps.find((x) => x.value === value);
  if (color !== "c0" && origin) view.figure.querySelector(".symbol").replaceWith(jump(symbol, origin, color));
  return Object.assign(view, { value, isTransposed });
}

// a button that shows the step in which an operand is computed
function jump(symbol, origin, color) {
  const title = "Show how it is computed";
  const button = make("button", { type: "button", className: `symbol ${color}`, innerHTML: symbol, title });
  button.setAttribute("aria-label", `${textOf(symbol)}: show how it is computed`);
  button.addEventListener("click", () => go(origin.index));
  return button;
}

function transposed(symbol) {
  return `<math><msup>${row(...symbolNodes(symbol).map((x) => x.outerHTML))}<mo>⊤</mo></msup></math>`;
}

function showEquation(current, colors) {
  const [phase, arrow] = PHASES[current.phase];
  const owner = current.layer ? `layer ${current.layer}, ${current.class}` : current.class;
  const count = make("span", { className: "count", textContent: `${current.index + 1} / ${steps.length}` });
  const name = make("b", { textContent: `${phase} ${arrow}` });
  $("where").replaceChildren(name, " ", make("span", { textContent: owner }), " ", count);
  $("equation").innerHTML = current.numbered;
  const lengths = new Map([...colors.keys()].map((k) => [k, textOf(symbolOf(k)).length]));
  for (const k of [...colors.keys()].sort((a, b) => lengths.get(b) - lengths.get(a))) {
    paint($("equation"), symbolNodes(symbolOf(k)), colors.get(k)); // DZ before Z
  }
  $("own").innerHTML = current.equation;
  $("source").textContent = current.source;
  $("location").textContent = current.location;
  $("definition").hidden = !current.definition;
  $("definition").lastElementChild.textContent = current.definition ?? "";
  $("note").textContent = current.note ?? "";
  showVerdict(current.verdict);
}

// give a symbol in an equation its colour: a run of siblings with the same text, ignoring the exponent of the last
function paint(root, nodes, color) {
  const wanted = nodes.map((x) => x.textContent);
  for (const first of root.querySelectorAll(":not(math, mrow, mo)")) {
    const run = [first];
    while (run.length < wanted.length && run.at(-1).nextElementSibling) run.push(run.at(-1).nextElementSibling);
    const isSame = run.length === wanted.length && run.every((x, p) => readings(x).includes(wanted[p]));
    const isFree = run.every((x) => !x.closest(".painted") && !x.querySelector(".painted"));
    if (isSame && isFree) run.forEach((x) => x.classList.add("painted", color));
  }
}

// the text of an element, and that without an exponent
function readings(node) {
  const [base, lower] = node.children;
  const bare = { msup: () => base.textContent, msubsup: () => base.textContent + lower.textContent };
  return [node.textContent, bare[node.tagName.toLowerCase()]?.()];
}

function showVerdict({ ok, summary, details }) {
  const kind = ok === null ? "unknown" : ok ? "right" : "wrong";
  const sign = { right: "✓", wrong: "✗", unknown: "–" }[kind];
  const box = make("details", { className: `verdict ${kind} ${details.length ? "" : "plain"}` });
  box.append(make("summary"), make("ul"));
  box.firstChild.append(make("b", { textContent: sign }), ` ${summary}`);
  box.lastChild.append(...details.map((x) => make("li", { textContent: x })));
  box.open = ok === false || innerWidth > 1100;
  $("verdict").replaceChildren(box);
}

const rootSize = () => parseFloat(getComputedStyle(document.documentElement).fontSize); // pixels of 1 rem

// the sizes of all that is shown, for the width that there is and the numbers as they are
function layout() {
  fit($("equation"), 0.5);
  fit($("own"), 0.7);
  const room = $("matrices").clientWidth;
  const unit = rootSize() / 16;
  for (const view of views) view.measure();
  const isNarrow = views.reduce((sum, x) => sum + x.widthOfNumbers(LARGE * unit) + GAP * unit, 0) > room;
  $("matrices").classList.toggle("apart", isNarrow);
  for (const view of views) view.layout(room, isNarrow ? unit : LARGE * unit);
  highlight(...state.pinned, false);
}

// make an equation as large as it fits, down to a part of its size; what is still too wide can be scrolled
function fit(box, least) {
  box.style.fontSize = "";
  const ratio = Math.min(box.clientWidth / box.scrollWidth, (TALLEST * rootSize()) / box.scrollHeight);
  const size = parseFloat(getComputedStyle(box).fontSize);
  if (ratio < 1) box.style.fontSize = `${size * Math.max(least, ratio * 0.99)}px`;
}

// -- pointing ----------------------------------------------------------------------------------
function point(view, i, j) {
  if (view === views[0]) highlight(i, j, true);
  else readOut(view, i, j);
}

// choose an entry until another is chosen, and say what it is
function pin(view, i, j) {
  if (view === views[0]) state.pinned = [i, j];
  point(view, i, j);
  say(`${view.name} row ${i + 1} column ${j + 1}: ${$("arithmetic").textContent.replace(/\s+/g, " ")}`);
}

// mark an entry of the result and the entries that it is computed from, and write the arithmetic
function highlight(i, j, isFading) {
  const [result, ...operands] = views;
  const isStored = result.at(i, j) !== undefined;
  const masks = isStored ? arithmetic.sources(result.value, i, j) : new Map();
  result.mark([[i, j]], isFading);
  for (const view of operands) view.mark(cellsOf(view, masks.get(view.value)), isFading);
  if (isStored) writeArithmetic(result.value, i, j);
  else writeLine(notation.element(result.value, i, j), "is not stored: it is 0 and stays 0");
}

// the cells of the elements in a mask
function cellsOf({ value, isTransposed }, mask) {
  const cells = [];
  mask?.forEach((isMarked, p) => isMarked && cells.push(arithmetic.place(value, p)));
  return isTransposed ? cells.map(([i, j]) => [j, i]) : cells;
}

// mark an entry of an operand and the entries of the result that depend on it, and write its value
function readOut(view, i, j) {
  const place = view.isTransposed ? [j, i] : [i, j];
  const x = view.at(i, j);
  for (const other of views.slice(1)) other.mark(other === view ? [[i, j]] : [], x !== undefined);
  const p = arithmetic.position(view.value, ...place);
  const mask = p === undefined ? [] : arithmetic.influence(views[0].value, view.value, p, state.results);
  views[0].mark(cellsOf(views[0], mask), x !== undefined);
  const symbol = notation.element(view.value, ...place);
  view.window.title = x === undefined ? "" : `${textOf(symbol)} = ${numberText(x)}`;
  writeLine(symbol, x === undefined ? "is not stored: it is 0" : `${EQUALS}${inMath(numberMath(x).text)}`);
}

// -- arithmetic --------------------------------------------------------------------------------
const EQUALS = '<b class="is">=</b>';
const inMath = (x) => `<math displaystyle="true">${x}</math>`;

function writeLine(symbol, text) {
  const { height } = $("arithmetic").getBoundingClientRect();
  $("arithmetic").style.minHeight = `${height}px`; // nothing moves under the pointer
  $("arithmetic").innerHTML = `<div class="line">${inMath(symbol)} <span class="terms">${text}</span></div>`;
}

function writeArithmetic(k, i, j) {
  const lines = notation.lines(state.results, k, i, j).map(({ symbol, expression, numbers, result, isLast }) => {
    const isPlain = numbers.length === 1 && textOf(numbers[0]) === textOf(result);
    const terms = isPlain ? "" : `${EQUALS}${numbers.map(inMath).join(" ")} `;
    return `<div class="line ${isLast ? "whole" : "part"}">${inMath(symbol)}
      <span class="terms">${EQUALS}${inMath(expression)}</span>
      <span class="terms">${terms}<span class="result">${EQUALS}${inMath(result)}</span></span></div>`;
  });
  $("arithmetic").style.minHeight = "";
  $("arithmetic").innerHTML = lines.join("");
}
