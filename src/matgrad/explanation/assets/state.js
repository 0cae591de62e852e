// What the page knows: the program of the step, the numbers that it has computed, and which step is shown.

const PRIME = '<mo class="prime" lspace="0" rspace="0">′</mo>'; // close to its letter
const closer = (_, x) => (typeof x === "string" ? x.replaceAll("<mo>′</mo>", PRIME) : x);
const data = JSON.parse(document.getElementById("data").textContent, closer);
const PHASES = {
  feedforward: ["Feedforward", "→"],
  loss: ["Loss", ""],
  backpropagate: ["Backpropagation", "←"],
  optimize: ["Optimization", ""],
};
const MOST = 5000; // losses that are kept

const program = new Program(data);
const arithmetic = new Arithmetic(program, new Set(data.steps.map((x) => x.value)));
const steps = data.steps.map((x, index) => ({ ...x, index }));
const state = { step: 0, pinned: [0, 0], isOpened: false, chosen: null, inputs: program.inputs, results: [], losses: [], count: 0 };

const $ = (id) => document.getElementById(id);
const make = (name, properties) => Object.assign(document.createElement(name), properties);
const textOf = (html) => parsed(html).textContent;
const lossNow = () => state.results[data.loss][0];

function symbolOf(k) {
  return data.symbols[k] ?? `<math><mtext>${(program.values[k].name ?? "").replace(/[<&]/g, "")}</mtext></math>`;
}

// an element of a value; undefined where a sparse matrix stores none
function element(k, i, j) {
  const p = arithmetic.position(k, i, j);
  return p === undefined ? undefined : state.results[k][p];
}

// the first step, with the learning rate that is set
function restart() {
  state.inputs = { ...program.inputs, eta: state.inputs.eta };
  state.results = program.run(state.inputs);
  state.losses = [lossNow()];
  state.count = 0;
}

function optimize(count) {
  for (let i = 0; i < count; i++) {
    state.inputs = program.next(state.inputs, state.results);
    state.results = program.run(state.inputs);
    state.losses.push(lossNow());
  }
  state.losses = state.losses.slice(-MOST);
  state.count += count;
}

// another number for an element of an input, such as a weight: everything that follows from it is computed anew
function change({ value, position }, x) {
  const { name } = program.values[value];
  state.inputs = { ...state.inputs, [name]: state.inputs[name].with(position, x) };
  state.results = program.run(state.inputs);
  state.losses = [...state.losses.slice(0, -1), lossNow()];
}

function learnAt(eta) {
  state.inputs = { ...state.inputs, eta: Float64Array.of(eta) };
  state.results = program.run(state.inputs);
}

// what a screen reader says
function say(text) {
  $("live").textContent = text;
}
