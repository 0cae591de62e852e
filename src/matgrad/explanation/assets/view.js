// The page as a whole: steps, playing, training, themes and keys.

const PAUSE = 2400; // milliseconds between steps that are played

function go(step) {
  state.step = Math.min(steps.length - 1, Math.max(0, step));
  const current = steps[state.step];
  showStage(current);
  showNetwork(current);
  say(`Step ${state.step + 1} of ${steps.length}: ${current.text}`);
}

// the equation with the steps of softmax, of an activation function and the like, or with their names
function toggleSteps() {
  state.isOpened = !state.isOpened;
  showStage(steps[state.step]);
}

// the current equation alone, in large type
const isPresented = () => document.documentElement.hasAttribute("data-presented");

function togglePresentation() {
  const isOn = document.documentElement.toggleAttribute("data-presented");
  $("present").ariaPressed = `${isOn}`;
  redraw();
}

// -- playing -----------------------------------------------------------------------------------
let timer = null;

function play() {
  timer = timer === null ? setInterval(advance, PAUSE) : clearInterval(timer) ?? null;
  const isPlaying = timer !== null;
  Object.assign($("play"), { ariaPressed: `${isPlaying}`, ariaLabel: isPlaying ? "Pause" : "Play" });
  $("play").textContent = isPlaying ? "❚❚" : "▶";
}

// the next step; after the last one, the optimizer has made its step, and the pass begins again
function advance() {
  if (state.step < steps.length - 1) return go(state.step + 1);
  takeSteps(1);
  go(0);
}

// -- training ----------------------------------------------------------------------------------
function takeSteps(count) {
  optimize(count);
  refresh();
  say(`After ${counted(state.count)} the loss is ${numberText(state.losses.at(-1))}`);
}

function reset() {
  restart();
  refresh();
}

function setRate(eta) {
  learnAt(eta);
  refresh();
}

// new numbers in everything that is shown
function refresh() {
  layout();
  showTraining();
}

function setEntry(x) {
  change(state.chosen, x);
  refresh();
}

function showTraining() {
  showChosen();
  const eta = state.inputs.eta[0];
  $("loss-name").textContent = state.count ? `loss after ${counted(state.count)}` : "loss";
  $("loss").textContent = numberText(state.losses.at(-1));
  $("rate").value = Math.log10(eta);
  $("rate-value").textContent = $("rate").ariaValueText = `${Number(eta.toPrecision(2))}`;
  $("curve").innerHTML = curve(state.losses);
}

// the loss by step
const counted = (count) => `${count} ${count === 1 ? "step" : "steps"}`;

function curve(losses) {
  const finite = losses.filter(Number.isFinite);
  const [top, bottom] = finite.length ? [Math.max(...finite), Math.min(0, ...finite)] : [1, 0];
  const [width, height, end] = [240, 104, 236];
  const last = Math.max(10, losses.length - 1);
  const x = (i) => 4 + (i / last) * (width - 46);
  const y = (loss) => 8 + (1 - (loss - bottom) / (top - bottom || 1)) * (height - 16);
  const at = (loss, i) => (Number.isFinite(loss) ? [`${x(i).toFixed(1)},${y(loss).toFixed(1)}`] : []);
  const points = losses.flatMap(at);
  const [cx, cy] = (points.at(-1) ?? "4,8").split(",");
  const label = `Loss of the last ${counted(losses.length - 1)}, from ${numberText(losses[0])} to ${numberText(losses.at(-1))}`;
  return `<svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${label}">
    <text x="${end}" y="${y(top) + 3}">${numberText(top)}</text>
    <text x="${end}" y="${y(bottom) - 4}">${numberText(bottom)}</text>
    <line x1="4" x2="${end}" y1="${y(bottom)}" y2="${y(bottom)}"></line>
    <polyline points="${points.join(" ")}"></polyline><circle cx="${cx}" cy="${cy}" r="3.5"></circle></svg>`;
}

// -- themes ------------------------------------------------------------------------------------
function toggleTheme() {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  redraw();
}

function redraw() {
  reveal($("steps"), $("steps").querySelector("[aria-current]"));
  layout();
  const ink = $("scale").getContext("2d");
  for (let x = 0; x < 160; x++) {
    ink.fillStyle = `rgb(${heat(x / 80 - 1)})`;
    ink.fillRect(x, 0, 1, 8);
  }
}

// -- controls ----------------------------------------------------------------------------------
const KEYS = {
  ArrowLeft: () => go(state.step - 1),
  ArrowRight: () => go(state.step + 1),
  Home: () => go(0),
  End: () => go(steps.length - 1),
  p: play,
  s: () => takeSteps(1),
  d: toggleTheme,
  f: togglePresentation,
  Escape: () => isPresented() && togglePresentation(),
  o: toggleSteps,
};
const BUTTONS = {
  previous: KEYS.ArrowLeft,
  next: KEYS.ArrowRight,
  play,
  step: KEYS.s,
  ten: () => takeSteps(10),
  reset,
  theme: toggleTheme,
  open: toggleSteps,
  present: togglePresentation,
};

function listen() {
  for (const [id, action] of Object.entries(BUTTONS)) $(id).addEventListener("click", action);
  $("rate").addEventListener("input", () => setRate(10 ** Number($("rate").value)));
  $("entry").addEventListener("input", () => setEntry(Number($("entry").value)));
  addEventListener("keydown", (event) => {
    const action = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input")) return;
    event.preventDefault();
    action();
  });
  new ResizeObserver(redraw).observe($("bar"));
  addEventListener("resize", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  document.fonts.ready.then(redraw);
}

makeNetwork();
makeSteps();
restart();
go(0);
showTraining();
listen();

// for tests, and for the curious
window.matgrad = {
  data,
  program,
  arithmetic,
  state,
  go,
  takeSteps,
  assignments: (over, environment) => [...assignments(over, environment)],
  cell: (k) => [views[k].width, views[k].height, MARGIN],
  text: (k, i, j) => views[k].text(views[k].at(i, j)),
  marked: () => views.map((view) => view.marked),
  values: () => steps.map((x) => Array.from(state.results[x.value])),
  current: () => Object.fromEntries(Object.entries(state.inputs).map(([name, x]) => [name, Array.from(x)])),
};
