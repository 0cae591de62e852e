// The layers in a row, with a dot for each of their equations, and the list of all equations.

const topLayer = ({ layer }) => (layer ?? "").split(".")[0]; // that a part belongs to; '' for the loss

function makeNetwork() {
  const { layers, loss, optimizer, examples } = data.network;
  const tops = layers.filter((x) => !x.name.includes("."));
  $("summary").textContent = [`${examples} examples`, `${tops.length} layers`, loss, optimizer].join(" · ");
  $("faults").replaceChildren(...steps.filter(isWrong).map(faultButton));
  const nodes = tops.map(({ name, specification, inputs, outputs, density, definition }) => {
    const stored = density < 1 ? ` · ${Number((100 * density).toFixed(1))} %` : "";
    return layerNode(name, specification, `${inputs} → ${outputs}${stored}`, definition);
  });
  $("layers").replaceChildren(...nodes, layerNode("", loss.replace(/Loss$/, ""), "loss", loss));
}

const isWrong = ({ verdict }) => verdict.ok === false;

// what is wrong, as a button that shows it
function faultButton({ title, index, verdict }) {
  const button = make("button", { type: "button", textContent: `✗ ${title} is wrong`, title: verdict.details.join("\n") });
  button.addEventListener("click", () => go(index));
  return button;
}

function layerNode(name, title, sizes, definition) {
  const own = steps.filter((x) => topLayer(x) === name);
  const button = make("button", { type: "button", title: definition });
  const texts = Object.entries({ number: name, title, sizes });
  button.append(...texts.map(([className, textContent]) => make("span", { className, textContent })), dots(own));
  button.addEventListener("click", () => {
    const { phase } = steps[state.step];
    go((own.find((x) => x.phase === phase) ?? own[0] ?? steps[state.step]).index);
  });
  const node = make("li", { className: own.some(isWrong) ? "wrong" : "" });
  node.dataset.layer = name;
  node.append(button);
  return node;
}

// a dot for each equation; backpropagation goes from right to left
function dots(own) {
  const box = make("span", { className: "dots", ariaHidden: "true" });
  for (const phase of Object.keys(PHASES)) {
    const found = own.filter((x) => x.phase === phase).map((x) => make("i", { id: `dot-${x.index}` }));
    const lane = make("span", { className: "lane" });
    lane.append(...(phase === "backpropagate" ? found.reverse() : found));
    if (found.length) box.append(lane);
  }
  return box;
}

function makeSteps() {
  for (const [phase, [title]] of Object.entries(PHASES)) {
    const list = make("ol");
    list.append(...steps.filter((x) => x.phase === phase).map(stepItem));
    if (list.children.length) $("steps").append(make("h2", { textContent: title }), list);
  }
}

function stepItem({ numbered, text, index, verdict }) {
  const button = make("button", { type: "button", innerHTML: lastLine(numbered), ariaLabel: text });
  if (isWrong({ verdict })) Object.assign(button, { className: "wrong", ariaLabel: `${text}: wrong` });
  button.dataset.step = index;
  button.addEventListener("click", () => go(index));
  const item = make("li");
  item.append(button);
  return item;
}

// of several lines that are aligned, the last
function lastLine(math) {
  const line = [...parsed(math).querySelectorAll("math > mrow > mtable > mtr, math > mtable > mtr")].at(-1);
  return line ? `<math>${[...line.children].map((x) => x.innerHTML).join("")}</math>` : math;
}

function showNetwork(current) {
  for (const node of $("layers").children) {
    const isCurrent = node.dataset.layer === topLayer(current);
    node.classList.toggle("current", isCurrent);
    if (isCurrent) reveal($("layers"), node);
  }
  for (const step of steps) {
    const { index } = step;
    const dot = $(`dot-${index}`);
    if (dot) dot.className = (isWrong(step) ? "wrong " : "") + (index < current.index ? "done" : index === current.index ? "now" : "");
  }
  $("steps").querySelector("[aria-current]")?.removeAttribute("aria-current");
  const button = $("steps").querySelector(`[data-step="${current.index}"]`);
  button.setAttribute("aria-current", "step");
  reveal($("steps"), button);
}

// scroll a box, and nothing else, so far that something in it is seen
function reveal(box, item) {
  const [outer, inner] = [box, item].map((x) => x.getBoundingClientRect());
  box.scrollTop += Math.min(0, inner.top - outer.top - 40) + Math.max(0, inner.bottom - outer.bottom + 40);
  box.scrollLeft += Math.min(0, inner.left - outer.left - 20) + Math.max(0, inner.right - outer.right + 20);
}
