// A matrix as a heat map: numbers in the cells where there is room, and entries that can be pointed at.

const SCALES = {
  light: { negative: [24, 95, 168], zero: [246, 245, 242], positive: [200, 84, 10], paper: [255, 255, 255] },
  dark: { negative: [104, 172, 245], zero: [38, 43, 51], positive: [255, 154, 77], paper: [24, 28, 34] },
};
const MARGIN = 18; // for the indices of rows and columns
const ROW = 26;
const MASKED = -9e8; // less than this is a score where a token may not look, for which the others need not be pale
const FADED = 0.45; // strength of the entries that are not marked
const MANY = 4000; // cells that are drawn one by one
const FONT = 'system-ui, "Segoe UI", Roboto, sans-serif';

const isDark = () => {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};

// the colour of x/limit in [-1, 1], faded towards the paper where `strength` is below 1
function heat(x, strength = 1) {
  const scale = SCALES[isDark() ? "dark" : "light"];
  const end = x < 0 ? scale.negative : scale.positive;
  const t = Math.min(1, Math.abs(x)) ** 0.85;
  return scale.zero.map((z, c) => Math.round((z + (end[c] - z) * t) * strength + scale.paper[c] * (1 - strength)));
}

function inkOn(rgb) {
  const [r, g, b] = rgb.map((c) => (c / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.25 ? "#171a1f" : "#ffffff";
}

// whether a number that is not 0 has no digit but zeros
const isTiny = (x, digits) => x !== 0 && Number(x.toFixed(digits)) === 0;

// a colour of the style sheet, for a canvas
function styleColor(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

class MatrixView {
  // `at(i, j)` is the element at a cell, undefined where a sparse matrix stores none, null between images; `shape` counts
  // cells, `parts` are the height and width of an image with what is after it, and `cell` and `place` as in `drawing`
  constructor({ name, symbol, shape, size, parts, cell, place, at, stored, color, events }) {
    Object.assign(this, { name, shape, size, parts, cell, place, at, stored, color, events });
    this.isEnlarged = false;
    this.isSingle = shape[0] * shape[1] === 1;
    this.marked = [];
    this.markedKeys = new Set();
    this.cursor = [0, 0];
    this.figure = make("figure", { className: "matrix" });
    this.figure.innerHTML = `
      <figcaption><span class="symbol ${color}">${symbol}</span> <span class="size"></span></figcaption>
      <div class="window" tabindex="0" role="application" aria-roledescription="matrix">
        <div class="sheet"><canvas></canvas></div>
      </div>`;
    [this.window, this.sheet, this.canvas] = [".window", ".sheet", "canvas"].map((x) => this.figure.querySelector(x));
    this.window.setAttribute("aria-label", `${name}, ${shape[0]} by ${shape[1]}: move with the arrow keys`);
    this.#listen();
  }

  #listen() {
    const { window: box, events } = this;
    const point = (event) => {
      const cell = this.#cellAt(event);
      if (cell) events.point(this, ...cell);
      else events.leave(this);
    };
    box.addEventListener("pointermove", point);
    box.addEventListener("pointerleave", () => events.leave(this));
    box.addEventListener("pointerdown", (event) => {
      const cell = this.#cellAt(event);
      if (cell) events.pin(this, ...(this.cursor = cell));
    });
    box.addEventListener("scroll", () => this.draw());
    box.addEventListener("focus", () => box.matches(":focus-visible") && events.pin(this, ...this.cursor));
    box.addEventListener("keydown", (event) => this.#move(event));
  }

  #move(event) {
    const [m, n] = this.shape;
    let [i, j] = this.cursor;
    const moves = {
      ArrowUp: () => i--,
      ArrowDown: () => i++,
      ArrowLeft: () => j--,
      ArrowRight: () => j++,
      Home: () => (j = 0),
      End: () => (j = n - 1),
      PageUp: () => (i = 0),
      PageDown: () => (i = m - 1),
    };
    if (!moves[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    moves[event.key]();
    event.preventDefault();
    event.stopPropagation();
    this.cursor = [Math.min(m - 1, Math.max(0, i)), Math.min(n - 1, Math.max(0, j))];
    this.#reveal();
    this.events.pin(this, ...this.cursor);
  }

  // scroll the cell at the cursor into view
  #reveal() {
    const [i, j] = this.cursor;
    const { window: box, width, height } = this;
    const fit = (start, size, from, room) => Math.min(Math.max(from, start + size - room), start - MARGIN);
    box.scrollLeft = fit(MARGIN + j * width, width, box.scrollLeft, box.clientWidth);
    box.scrollTop = fit(MARGIN + i * height, height, box.scrollTop, box.clientHeight);
  }

  #cellAt(event) {
    const place = this.canvas.getBoundingClientRect();
    const j = Math.floor((event.clientX - place.left + this.window.scrollLeft - MARGIN) / this.width);
    const i = Math.floor((event.clientY - place.top + this.window.scrollTop - MARGIN) / this.height);
    return i >= 0 && j >= 0 && i < this.shape[0] && j < this.shape[1] ? [i, j] : null;
  }

  // read the elements anew
  measure() {
    const [m, n] = this.shape;
    this.limit = 0;
    this.picture = null;
    let areWhole = true;
    for (let i = 0; i < m; i++) {
      for (let j = 0; j < n; j++) {
        const x = this.at(i, j) ?? 0;
        const size = x < MASKED ? 0 : Math.abs(x);
        if (Number.isFinite(size) && size > this.limit) this.limit = size;
        areWhole &&= Number.isInteger(size);
      }
    }
    const digits = 1 - Math.floor(Math.log10(this.limit || 1)); // two significant ones, at least 2 after the point
    this.digits = areWhole || this.limit >= 1000 ? 0 : this.limit >= 100 ? 1 : Math.min(4, Math.max(2, digits));
    this.isExponential = this.limit < 1e-3 || this.limit >= 1e6;
    const sign = this.isSingle && this.at(0, 0) >= 0 ? 1 : -1;
    this.numbered = Math.max(40, 8 + 7.4 * this.text(sign * this.limit).length);
  }

  widthOfNumbers(scale) {
    return MARGIN + this.shape[1] * this.numbered * scale;
  }

  // choose the size of the cells for a given width; below a `part` of 1 there are no numbers, and cells are smaller
  layout(room, scale, part) {
    const [m, n] = this.shape;
    this.scale = scale;
    this.hasNumbers = this.isEnlarged || (part > 0.75 && this.widthOfNumbers(scale) <= room && m <= 14);
    const between = (x, low, high) => Math.min(high, Math.max(low, x));
    const half = Math.max(300, room / 2 - GAP); // for two matrices in a line
    const [least, most] = part < 1 ? [1, 24 * part] : [5, 24];
    this.width = between(((Math.min(room, half) - MARGIN) / n) * part, least, most);
    this.height = between(Math.min((340 * part) / m, this.width * 1.6), least, most);
    this.width = Math.min(this.width, this.height * 2);
    if (this.hasNumbers) [this.width, this.height] = [this.numbered * scale, ROW * scale * Math.max(part, 0.85)];
    this.#caption();
    this.sheet.style.width = `${MARGIN + n * this.width + 2}px`;
    this.sheet.style.height = `${MARGIN + m * this.height + 2}px`;
    this.window.style.maxWidth = `${room}px`;
    this.draw();
  }

  #caption() {
    const size = this.isSingle ? "" : this.size;
    const stored = this.stored ? `${this.stored} stored` : "";
    const limit = this.isSingle ? "" : `±${numberText(this.limit)}`;
    const box = this.figure.querySelector(".size");
    box.textContent = [size, stored, limit].filter(Boolean).join(" · ");
    if (this.isEnlarged || !this.hasNumbers) box.append(" ", this.#zoomButton());
  }

  // shows the numbers of a matrix that is too large for them, in a window that can be scrolled, or all of it again
  #zoomButton() {
    const [textContent, title] = this.isEnlarged ? ["fit", "Show all of"] : ["numbers", "Show the numbers of"];
    const ariaLabel = `${title} ${this.name}`;
    const button = make("button", { type: "button", className: "zoom", textContent, ariaLabel });
    button.addEventListener("click", () => {
      this.isEnlarged = !this.isEnlarged;
      this.events.resize();
      this.figure.querySelector(".zoom")?.focus();
    });
    return button;
  }

  text(x) {
    if (x === 0) return "0";
    if (x < MASKED) return "−10⁹";
    const isWhole = Number.isInteger(x) && this.digits === 0;
    if (!Number.isFinite(x) || isWhole) return numberText(x);
    if (this.isExponential) return x.toExponential(1).replaceAll("-", "−").replace("+", "");
    const text = isTiny(x, this.digits) ? x.toExponential(0) : x.toFixed(this.digits);
    return text.replaceAll("-", "−");
  }

  // the part of the matrix that is in the window
  draw() {
    const { window: box, width, height } = this;
    const [m, n] = this.shape;
    const [left, top] = [box.scrollLeft - MARGIN, box.scrollTop - MARGIN];
    const sizes = [Math.min(box.clientWidth, MARGIN + n * width + 2), Math.min(box.clientHeight, MARGIN + m * height + 2)];
    const ink = this.#blank(...sizes);
    ink.translate(-left, -top);
    this.hole = styleColor("hole");
    const rows = range(m).slice(Math.max(0, Math.floor(top / height)), Math.ceil((top + sizes[1]) / height));
    const columns = range(n).slice(Math.max(0, Math.floor(left / width)), Math.ceil((left + sizes[0]) / width));
    if (rows.length * columns.length > MANY) this.#drawPicture(ink);
    else for (const i of rows) for (const j of columns) this.#cell(ink, i, j);
    this.#outline(ink);
  }

  // the canvas, cleared, in a given size
  #blank(width, height) {
    const { canvas } = this;
    const ratio = devicePixelRatio || 1;
    const sizes = [Math.ceil(width * ratio), Math.ceil(height * ratio)];
    if (canvas.width !== sizes[0] || canvas.height !== sizes[1]) [canvas.width, canvas.height] = sizes;
    Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
    const ink = canvas.getContext("2d");
    ink.setTransform(ratio, 0, 0, ratio, 0, 0);
    ink.clearRect(0, 0, width, height);
    Object.assign(ink, { textAlign: "center", textBaseline: "middle" });
    return ink;
  }

  // many cells at once: a picture with one pixel each, and the marked cells on it
  #drawPicture(ink) {
    const [m, n] = this.shape;
    ink.imageSmoothingEnabled = false;
    ink.globalAlpha = this.isFading ? FADED : 1;
    ink.drawImage((this.picture ??= this.#picture()), 0, 0, n * this.width, m * this.height);
    ink.globalAlpha = 1;
    for (const cell of this.marked) this.#cell(ink, ...cell);
  }

  #picture() {
    const [m, n] = this.shape;
    const canvas = make("canvas", { width: n, height: m });
    const pixels = new ImageData(n, m);
    for (let p = 0; p < m * n; p++) {
      const x = this.at(Math.floor(p / n), p % n);
      if (x !== undefined && x !== null) pixels.data.set([...heat(this.limit ? x / this.limit : 0), 255], 4 * p);
    }
    canvas.getContext("2d").putImageData(pixels, 0, 0);
    return canvas;
  }

  #cell(ink, i, j) {
    const { width, height } = this;
    const x = this.at(i, j);
    if (x === null) return;
    const gap = width > 9 && height > 9 ? 1 : 0;
    const isFaded = this.isFading && !this.markedKeys.has(i * this.shape[1] + j);
    if (x === undefined) {
      ink.fillStyle = this.hole;
      ink.beginPath();
      ink.arc((j + 0.5) * width, (i + 0.5) * height, Math.min(2, width / 6), 0, 7);
      ink.fill();
      return;
    }
    const isColored = this.limit && Number.isFinite(x) && !this.isSingle;
    const color = heat(isColored ? x / this.limit : 0, isFaded ? FADED : 1);
    ink.fillStyle = `rgb(${color})`;
    ink.fillRect(j * width, i * height, width - gap, height - gap);
    if (this.hasNumbers) {
      ink.globalAlpha = isFaded ? 0.5 : 1;
      const isSmall = !this.isExponential && isTiny(x, this.digits);
      ink.font = `${(isSmall ? 10 : 12.5) * this.scale}px ${FONT}`;
      ink.fillStyle = inkOn(color);
      ink.fillText(this.text(x), (j + 0.5) * width, (i + 0.5) * height + 0.5);
      ink.globalAlpha = 1;
    }
  }

  // mark some cells [i, j]; the others may fade, but not those of a window round them
  mark(cells, isFading, window = []) {
    this.marked = cells;
    this.framed = window;
    this.markedKeys = new Set([...cells, ...window].map(([i, j]) => i * this.shape[1] + j));
    this.isFading = isFading;
    this.draw();
  }

  // a broken line round the window in each image
  #frames(ink) {
    if (!this.framed?.length) return;
    const [height, width] = this.parts ?? this.shape;
    const images = Map.groupBy(this.framed, ([i, j]) => `${Math.floor(i / height)} ${Math.floor(j / width)}`);
    ink.strokeStyle = styleColor(this.color);
    ink.lineWidth = 1.5;
    ink.setLineDash([4, 3]);
    for (const cells of images.values()) {
      const [rows, columns] = [0, 1].map((side) => cells.map((x) => x[side]));
      const [top, left] = [Math.min(...rows), Math.min(...columns)];
      const [bottom, right] = [Math.max(...rows) + 1, Math.max(...columns) + 1];
      const [x, y] = [left * this.width - 1, top * this.height - 1];
      ink.strokeRect(x, y, (right - left) * this.width + 1, (bottom - top) * this.height + 1);
    }
    ink.setLineDash([]);
  }

  // a frame round the marked entries: one if they form a rectangle, else one each; and their indices
  #outline(ink) {
    const { width, height } = this;
    const [m, n] = this.shape;
    const { marked } = this;
    this.#frames(ink);
    if (!marked.length) return;
    const [rows, columns] = [0, 1].map((side) => [...new Set(marked.map((x) => x[side]))].sort((x, y) => x - y));
    const box = [rows[0], columns[0], rows.at(-1) + 1, columns.at(-1) + 1];
    const isWhole = (box[2] - box[0]) * (box[3] - box[1]) === marked.length;
    ink.strokeStyle = ink.fillStyle = styleColor(this.color);
    ink.lineWidth = 2;
    for (const [i, j, k, l] of isWhole ? [box] : marked.map(([i, j]) => [i, j, i + 1, j + 1])) {
      ink.beginPath();
      ink.roundRect(j * width - 1, i * height - 1, (l - j) * width + 1, (k - i) * height + 1, 3);
      ink.stroke();
    }
    ink.font = `${Math.min(12.5, 10.5 * this.scale)}px ${FONT}`;
    if (rows.length < m && (height >= 14 || rows.length === 1)) {
      for (const i of rows) ink.fillText(`${(i % (this.parts?.[0] ?? m)) + 1}`, -10, (i + 0.5) * height);
    }
    if (columns.length < n && (width >= 14 || columns.length === 1)) {
      for (const j of columns) ink.fillText(`${(j % (this.parts?.[1] ?? n)) + 1}`, (j + 0.5) * width, -9);
    }
  }
}
