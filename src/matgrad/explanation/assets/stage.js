// The current equation: its symbols and matrices in the same colours, its source, and the arithmetic of an entry.

const PALETTE = 6; // classes c1 … c6 of operands; the result is c0
const LARGE = 1.25; // of matrices that fit in one line
const GAP = 30; // pixels between matrices
const TALLEST = 12; // rem of an equation of several lines
const SMALLER = [0.8, 0.65, 0.5, 0.4, 0.3, 0.2]; // parts of the size of heat maps that are tried so that all are seen

let views = []; // of the result and of the operands
let notation = null;

function showStage(current) {
  const operands = arithmetic.operands(current.value);
  const colors = new Map([[current.value, "c0"]]);
  operands.forEach(({ value }, p) => colors.set(value, `c${(p % PALETTE) + 1}`));
  notation = new Notation(arithmetic, symbolOf, colors);
  views = [{ value: current.value, isTransposed: false }, ...operands].map((x) => viewOf(x, colors.get(x.value)));
  $("matrices").replaceChildren(...views.map((x) => x.figure));
  choose(current.value);
  showEquation(current, colors);
  layout();
}

// keep the chosen entry if the result has it
function choose(k) {
  const size = arithmetic.shape(k);
  state.pinned = state.pinned.map((i, side) => Math.min(i, size[side] - 1));
  if (element(k, ...state.pinned) === undefined) state.pinned = arithmetic.place(k, 0);
  views[0].cursor = views[0].cell(state.pinned);
}

function viewOf({ value, isTransposed }, color) {
  const [m, n] = arithmetic.shape(value);
  const symbol = isTransposed && m * n > 1 ? transposed(symbolOf(value)) : symbolOf(value);
  const drawn = drawing(value, isTransposed);
  const view = new MatrixView({
    name: textOf(symbol),
    symbol,
    ...drawn,
    at: (i, j) => {
      const place = drawn.place([i, j]);
      return place ? element(value, ...place) : null;
    },
    stored: arithmetic.supports[value]?.rows.length,
    color,
    events: { point, pin, leave: () => highlight(...state.pinned, false), resize: layout },
  });
  const origin = steps.find((x) => x.value === value);
  if (color !== "c0" && origin) view.figure.querySelector(".symbol").replaceWith(jump(symbol, origin, color));
  return Object.assign(view, { value, isTransposed });
}

// Where the elements of a matrix are drawn: the cell of an element, and the element at a cell, null between two parts.
function drawing(value, isTransposed) {
  const [m, n] = arithmetic.shape(value);
  const { parts, of } = isTransposed ? {} : data.values[value].tiles ?? {};
  const turned = ([i, j]) => (isTransposed ? [j, i] : [i, j]);
  if (!parts) return { shape: turned([m, n]), size: turned([m, n]).join(" × "), cell: turned, place: turned };
  const [height, width, count] = parts;
  const size = `${m} × ${n}: ${of}`;
  if (of === "heads") {
    // a block of L rows for each text and head, of which those of a text are side by side
    const cell = ([i, j]) => {
      const block = Math.floor(i / height);
      return [Math.floor(block / count) * (height + 1) + (i % height), (block % count) * (width + 1) + j];
    };
    const place = ([i, j]) => {
      const [text, head] = [Math.floor(i / (height + 1)), Math.floor(j / (width + 1))];
      const [row, column] = [i % (height + 1), j % (width + 1)];
      return row < height && column < width ? [(text * count + head) * height + row, column] : null;
    };
    const shape = [(m / height / count) * (height + 1) - 1, count * (width + 1) - 1];
    return { shape, size, cell, place, parts: [height + 1, width + 1] };
  }
  // an image of height × width pixels for each row and channel, of which those of a row are side by side
  const cell = ([i, j]) => {
    const [pixel, channel] = [Math.floor(j / count), j % count];
    return [i * (height + 1) + Math.floor(pixel / width), channel * (width + 1) + (pixel % width)];
  };
  const place = ([i, j]) => {
    const [row, column] = [i % (height + 1), j % (width + 1)];
    if (row === height || column === width) return null;
    return [Math.floor(i / (height + 1)), (row * width + column) * count + Math.floor(j / (width + 1))];
  };
  return { shape: [m * (height + 1) - 1, count * (width + 1) - 1], size, cell, place, parts: [height + 1, width + 1] };
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
  $("equation").innerHTML = (state.isOpened && current.opened) || current.numbered;
  $("open").hidden = !current.opened;
  $("open").textContent = state.isOpened ? "close the functions" : "open the functions";
  $("open").ariaExpanded = `${state.isOpened}`;
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
  const scales = isNarrow ? [unit] : [LARGE * unit, unit];
  highlight(...state.pinned, false); // the arithmetic takes its height
  fitArithmetic();
  for (const [scale, part] of [...scales.map((x) => [x, 1]), ...SMALLER.map((x) => [unit, x])]) {
    for (const view of views) view.layout(room, scale, part);
    if ($("matrices").scrollHeight <= $("matrices").clientHeight + 1) break;
  }
}

// make the arithmetic so small that its result is seen, if there is a limit to its height
function fitArithmetic() {
  const box = $("arithmetic");
  for (const size of [1, 0.85, 0.72, 0.62]) {
    box.style.fontSize = size < 1 ? `${size * 1.08}rem` : "";
    if (box.scrollHeight <= box.clientHeight + 1) break;
  }
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
  const place = view.place([i, j]);
  if (!place) return;
  if (view === views[0]) highlight(...place, true);
  else readOut(view, ...place);
}

// choose an entry until another is chosen, and say what it is
function pin(view, i, j) {
  const place = view.place([i, j]);
  if (!place) return;
  if (view === views[0]) state.pinned = place;
  else chooseInput(view, place);
  point(view, i, j);
  say(`${view.name} row ${place[0] + 1} column ${place[1] + 1}: ${$("arithmetic").textContent.replace(/\s+/g, " ")}`);
}

// an entry of an input, such as a weight, that can be dragged
function chooseInput({ value, limit }, place) {
  const position = arithmetic.position(value, ...place);
  if (program.values[value].operation !== "input" || position === undefined) return;
  state.chosen = { value, position };
  const most = 2 * Math.max(limit, 0.5);
  Object.assign($("entry"), { min: -most, max: most });
  $("entry-name").innerHTML = inMath(notation.element(value, ...place));
  $("chosen").hidden = !($("hint").hidden = true);
  showChosen();
}

function showChosen() {
  if (!state.chosen) return;
  $("entry").value = state.results[state.chosen.value][state.chosen.position];
  $("entry-value").textContent = numberText(Number($("entry").value));
}

// mark an entry of the result and the entries that it is computed from, and write the arithmetic
function highlight(i, j, isFading) {
  const [result, ...operands] = views;
  const isStored = element(result.value, i, j) !== undefined;
  const masks = isStored ? arithmetic.sources(result.value, i, j, state.results) : new Map();
  result.mark([result.cell([i, j])], isFading);
  const window = windowOf(result.value, i);
  for (const view of operands) view.mark(cellsOf(view, masks.get(view.value)), isFading, cellsOf(view, window.get(view.value)));
  if (isStored) writeArithmetic(result.value, i, j);
  else writeLine(notation.element(result.value, i, j), "is not stored: it is 0 and stays 0");
}

// the elements of the window that a row of U = stack(X Eᵀ, P) is, as masks by value; none for other equations
function windowOf(k, i) {
  const { operation, operands } = program.values[k];
  if (operation !== "stack" || program.values[operands[0]].operation !== "gather") return new Map();
  const found = new Map();
  for (const j of range(arithmetic.shape(k)[1])) {
    for (const [value, mask] of arithmetic.sources(k, i, j, state.results)) {
      found.set(value, found.get(value)?.map((x, p) => x || mask[p]) ?? mask);
    }
  }
  return found;
}

// the cells of the elements in a mask
function cellsOf({ value, cell }, mask) {
  const cells = [];
  mask?.forEach((isMarked, p) => isMarked && cells.push(cell(arithmetic.place(value, p))));
  return cells;
}

// mark an entry of an operand and the entries of the result that depend on it, and write its value
function readOut(view, ...place) {
  const x = element(view.value, ...place);
  for (const other of views.slice(1)) other.mark(other === view ? [view.cell(place)] : [], x !== undefined);
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
