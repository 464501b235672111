// The map of heads: any statistic as colour, one head chosen, everything known of it beside the map. The choice stands in
// the address after #, so that a head can be sent to someone.
const VIRIDIS = [[68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141], [39, 173, 129], [92, 200, 99], [170, 220, 50], [253, 231, 37]];
const KINDS = ["#D55E00", "#0072B2", "#56B4E9", "#009E73", "#8c6d5a", "#E69F00", "#CC79A7", "#7b4fa0", "#a3193f", "#aab4bf", "#d6c99a"];

function viridis(share) {
  const at = Math.min(1, Math.max(0, share)) * (VIRIDIS.length - 1), i = Math.min(VIRIDIS.length - 2, Math.floor(at));
  return `rgb(${VIRIDIS[i].map((low, part) => Math.round(low + (VIRIDIS[i + 1][part] - low) * (at - i))).join(" ")})`;
}

class HeadMap {
  constructor(place, data) {
    this.place = place;
    this.data = data;
    this.chosen = data.first;
    this.pointed = null;
    this.colour = "kind";
    this.logarithmic = true;
    this.hidden = null;
    this.layers = [...new Set(data.heads.map((head) => head.layer))].sort((a, b) => a - b);
    this.columns = Math.max(...data.heads.map((head) => head.head)) + 1;
    this.named = false;
    this.find = new Map(data.heads.map((head, i) => [`${head.layer}.${head.head}`, i]));
    this.build();
    this.named = this.read();
    this.paint();
    this.show();
    new ResizeObserver(() => this.resized()).observe(this.detail);
  }

  build() {
    this.menu = make("select", {}, make("option", { value: "kind" }, "kind of head"));
    for (const group of new Set(this.data.statistics.map((each) => each.group))) {
      const options = this.data.statistics.filter((each) => each.group === group).map((each) => make("option", { value: each.name }, each.label));
      this.menu.append(make("optgroup", { label: group }, ...options));
    }
    this.menu.addEventListener("change", () => { this.colour = this.menu.value; this.hidden = null; this.paint(); this.write(); });
    this.meaning = make("p", { class: "meaning" });
    this.legend = make("div", { class: "legend" });
    this.grid = this.buildGrid();
    this.tip = make("div", { class: "tip", hidden: "" });
    const hint = make("p", { class: "meaning" }, "Click a cell; or arrow keys, then Enter. The head under the pointer is the dashed curve.");
    this.note = make("p", { class: "note", role: "status", hidden: "" });
    const map = make("div", { class: "map" }, make("label", {}, "Colour shows ", this.menu), this.meaning, this.legend, this.grid, hint);
    this.detail = make("div", { class: "detail" });
    this.buildDetail();
    this.place.replaceChildren(this.note, map, this.detail, this.more, this.tip);
  }

  buildGrid() {
    const grid = make("div", { class: "grid", role: "grid", "aria-label": "Layer by head map; rows are layers" });
    const wide = Math.min(30, Math.max(3, Math.floor(430 / this.columns)));
    grid.style.setProperty("--columns", this.columns);
    grid.style.setProperty("--wide", `${wide}px`);
    grid.style.setProperty("--tall", `${Math.min(18, Math.max(6, Math.floor(640 / this.layers.length)))}px`);
    const every = (count, room) => [1, 2, 4, 5, 8, 10, 16, 20, 32].find((each) => each * room >= (count > 10 ? 20 : 14)) || 32;
    const steps = { head: every(this.columns, wide), layer: every(this.layers.length, Math.floor(640 / this.layers.length)) };
    const head = make("div", { role: "row" }, make("span", { role: "columnheader", class: "corner" }, "layer \\ head"));
    for (let i = 0; i < this.columns; i++) head.append(make("span", { role: "columnheader", class: "name" }, i % steps.head ? "" : String(i)));
    grid.append(head);
    this.cells = [];
    this.layers.forEach((layer, row) => {
      const line = make("div", { role: "row" }, make("span", { role: "rowheader", class: "name" }, row % steps.layer ? "" : String(layer)));
      for (let i = 0; i < this.columns; i++) {
        const index = this.find.get(`${layer}.${i}`);
        const cell = make("span", { role: "gridcell", tabindex: "-1" });
        if (index !== undefined) { cell.className = "cell"; cell.dataset.head = index; this.cells[index] = cell; }
        line.append(cell);
      }
      grid.append(line);
    });
    const over = (event) => event.target.dataset && event.target.dataset.head !== undefined ? Number(event.target.dataset.head) : null;
    grid.addEventListener("click", (event) => { const index = over(event); if (index !== null) this.choose(index); });
    grid.addEventListener("pointerover", (event) => this.point(over(event)));
    grid.addEventListener("pointerleave", () => this.point(null));
    grid.addEventListener("focusin", (event) => this.hint(over(event)));
    grid.addEventListener("focusout", () => this.hint(null));
    grid.addEventListener("keydown", (event) => this.key(event, over(event)));
    return grid;
  }

  buildDetail() {
    this.numbers = ["layer", "head"].map((name) => {
      const most = name === "layer" ? this.layers.at(-1) : this.columns - 1;
      const field = make("input", { type: "number", min: name === "layer" ? this.layers[0] : 0, max: most, step: 1, "aria-label": name });
      field.addEventListener("change", () => {
        const typed = this.numbers.map((each) => each.value), index = this.find.get(typed.map(Number).join("."));
        if (index !== undefined) { this.choose(index); return; }
        this.show();
        this.say([this.unmeasured(typed.join("."))]);
      });
      return field;
    });
    this.link = make("a", { class: "share" }, "link to this head");
    this.sentence = make("p", { class: "sentence", "aria-live": "polite" });
    const axis = make("input", { type: "checkbox" });
    axis.addEventListener("change", () => { this.logarithmic = axis.checked; this.drawCurve(); this.write(); });
    this.axis = axis;
    this.curve = make("div", { class: "plot" });
    this.parts = make("div", {});
    this.table = make("div", { class: "wide" });
    this.all = make("details", {}, make("summary", {}, "All numbers of this head"), this.table);
    this.all.addEventListener("toggle", () => this.fillTable());
    this.detail.append(
      make("div", { class: "title" }, make("label", {}, "Layer ", this.numbers[0]), make("label", {}, "head ", this.numbers[1]), this.link),
      this.sentence,
      make("h4", {}, "Positional kernel g(offset)"), make("p", { class: "meaning" }, `Mean logit by offset, with its ${this.data.band}. `, make("label", {}, axis, " logarithmic offsets")), this.curve,
      this.parts);
    this.attended = make("div", {});
    this.more = make("div", { class: "more" }, this.attended, this.all);
  }

  key(event, index) {
    if (index === null) return;
    const head = this.data.heads[index], row = this.layers.indexOf(head.layer), last = this.layers.length - 1;
    const moves = {
      ArrowRight: [row, head.head + 1], ArrowLeft: [row, head.head - 1], ArrowDown: [row + 1, head.head], ArrowUp: [row - 1, head.head],
      Home: [event.ctrlKey ? 0 : row, 0], End: [event.ctrlKey ? last : row, this.columns - 1], PageDown: [Math.min(last, row + 5), head.head], PageUp: [Math.max(0, row - 5), head.head],
    };
    if (event.key === "Enter" || event.key === " ") this.choose(index);
    else if (moves[event.key]) {
      const [to, column] = moves[event.key];
      const next = this.find.get(`${this.layers[to]}.${column}`);
      if (next !== undefined) { this.stop(next); this.cells[next].focus(); }
    } else return;
    event.preventDefault();
  }

  // The one cell that Tab reaches.
  stop(index) {
    if (this.stopped !== undefined) this.cells[this.stopped].tabIndex = -1;
    this.stopped = index;
    this.cells[index].tabIndex = 0;
  }

  choose(index) {
    this.chosen = index;
    this.say([]);
    this.show();
    this.write();
  }

  point(index) {
    if (index === this.pointed) return;
    this.pointed = index;
    this.hint(index);
    this.drawCurve();
  }

  words(index) {
    const head = this.data.heads[index], found = this.data.statistics.find((each) => each.name === this.colour);
    const kind = this.data.kinds[head.kind].name;
    if (!found) return kind;
    const interval = intervalWords(found, index);
    return `${found.label} ${valueWords(found, index)}${interval ? ` (${interval})` : ""}; ${kind}`;
  }

  hint(index) {
    this.tip.hidden = index === null;
    if (index === null) return;
    const head = this.data.heads[index], cell = this.cells[index].getBoundingClientRect(), all = this.place.getBoundingClientRect();
    this.tip.replaceChildren(make("strong", {}, `layer ${head.layer}, head ${head.head}`), make("span", {}, this.words(index)));
    this.tip.style.left = `${Math.max(0, Math.min(cell.left - all.left, all.width - this.tip.offsetWidth))}px`;
    this.tip.style.top = `${cell.bottom - all.top + 6}px`;
  }

  paint() {
    const found = this.data.statistics.find((each) => each.name === this.colour);
    this.menu.value = this.colour;
    this.meaning.textContent = found ? found.meaning : "One word a head, by a table of thresholds.";
    this.data.heads.forEach((head, i) => {
      const cell = this.cells[i], value = found ? found.values[i] : head.kind, unsure = found !== undefined && found.wide.includes(i);
      const share = found && (found.ends[1] > found.ends[0] ? (value - found.ends[0]) / (found.ends[1] - found.ends[0]) : 0.5);
      cell.style.background = value === null || unsure ? "" : found ? viridis(share) : KINDS[head.kind % KINDS.length];
      cell.classList.toggle("undefined", value === null);
      cell.classList.toggle("unsure", unsure);
      cell.classList.toggle("dim", !found && this.hidden !== null && head.kind !== this.hidden);
      cell.setAttribute("aria-label", `layer ${head.layer}, head ${head.head}: ${this.words(i)}`);
    });
    this.legend.replaceChildren(...(found ? this.scale(found) : this.kindButtons()));
  }

  // What the colours stand for, and the marks of heads without one.
  scale(found) {
    const mark = (name, words) => make("span", {}, make("i", { class: name }), ` ${words}`);
    const without = found.values.includes(null) ? [mark("undefined", "undefined")] : [];
    if (found.wide.length) without.push(mark("unsure", `undetermined (${found.wide.length}): interval too wide`));
    return [...(found.form === "truth" ? this.answers() : this.ramp(found)), ...without];
  }

  answers() {
    return [["no", 0], ["yes", 1]].map(([word, share]) => {
      const chip = make("i", {});
      chip.style.background = viridis(share);
      return make("span", {}, chip, ` ${word}`);
    });
  }

  ramp(found) {
    const bar = make("span", { class: "ramp", role: "presentation" });
    bar.style.background = `linear-gradient(90deg, ${VIRIDIS.map((each) => `rgb(${each.join(" ")})`).join(", ")})`;
    const end = (value) => make("span", {}, found.form === "whole" ? String(value).replace("-", "−") : shown(value));
    const beyond = found.clipped ? [make("small", {}, "colours end at the 2nd and 98th percentile")] : [];
    return [end(found.ends[0]), bar, end(found.ends[1]), ...beyond];
  }

  kindButtons() {
    return this.data.kinds.flatMap((kind, number) => {
      const count = this.data.heads.filter((head) => head.kind === number).length;
      if (!count) return [];
      const chip = make("i", {});
      chip.style.background = KINDS[number % KINDS.length];
      const button = make("button", { type: "button", title: kind.meaning, "aria-pressed": String(this.hidden === number) }, chip, ` ${kind.name} ${count}`);
      button.addEventListener("click", () => {
        this.hidden = this.hidden === number ? null : number;
        this.paint();
        this.legend.querySelector("[aria-pressed=true]")?.focus();
        this.meaning.textContent = `${kind.name}: ${kind.meaning}.`;
      });
      return [button];
    });
  }

  show() {
    const head = this.data.heads[this.chosen];
    this.cells.forEach((cell, i) => cell.setAttribute("aria-selected", String(i === this.chosen)));
    this.stop(this.chosen);
    [this.numbers[0].value, this.numbers[1].value] = [head.layer, head.head];
    this.axis.checked = this.logarithmic;
    this.sentence.textContent = head.sentence;
    this.link.href = this.address();
    this.drawCurve();
    this.drawParts();
    this.fillTable();
  }

  get width() { return Math.max(240, Math.floor(this.curve.clientWidth)); }

  resized() {
    if (this.width === this.drawn) return;
    this.drawCurve();
    this.drawParts();
  }

  drawCurve() {
    const other = this.pointed === null || this.pointed === this.chosen ? null : this.data.heads[this.pointed];
    this.drawn = this.width;
    this.curve.replaceChildren(curvePlot(this.width, this.data.offsets, this.data.heads[this.chosen], other, this.logarithmic, this.data.band));
  }

  drawParts() {
    const head = this.data.heads[this.chosen], parts = [];
    const add = (title, words, ...drawn) => parts.push(make("h4", {}, title), make("p", { class: "meaning" }, words), ...drawn);
    const plot = (svg) => make("div", { class: "plot" }, svg);
    if (head.lines || head.fourier) {
      const known = (name) => { const found = this.data.statistics.find((each) => each.name === name); return found && found.values[this.chosen] !== null ? `${shown(found.values[this.chosen] * 100)}%` : "an undefined share"; };
      const stems = head.lines ? `Stems: lines at the head's own rotary frequencies, hollow where the wavelength exceeds the offsets. Triangles: off the scale, taller than the range of g, as lines that are hardly told apart cancel. All explain ${known("lines_explained")} of g's variance, random frequencies ${known("lines_random")}. ` : "";
      const steps = head.g.filter((each) => each !== null), range = head.step * (Math.max(...steps) - Math.min(...steps));
      add("Frequencies of g", stems + (head.fourier ? "Grey: Fourier power, scaled to the height." : ""), plot(spectrumPlot(this.width, head.lines, head.fourier, range)));
    }
    if (head.distance) add("Attention by distance", "Bars: the head, with 95% intervals. Dashes: attention spread evenly.", plot(distancePlot(this.width, head.distance)));
    const attended = head.tokens ? [make("h4", {}, "What it attends to"), make("p", { class: "meaning" }, "Rows of the first sequence, evenly spaced and the same for every head; the keys with most of their attention, each among its neighbours."), make("div", { class: "rows" }, ...tokenRows(this.data.words, head.tokens))] : [];
    this.parts.replaceChildren(...parts);
    this.attended.replaceChildren(...attended);
  }

  fillTable() {
    if (this.all.open) this.table.replaceChildren(numberTable(this.data.statistics, this.chosen));
  }

  address() {
    const head = this.data.heads[this.chosen];
    return `#head=${head.layer}.${head.head}&colour=${this.colour}${this.logarithmic ? "" : "&axis=linear"}`;
  }

  write() {
    this.link.href = this.address();
    history.replaceState(null, "", this.address());
  }

  // Take the state from the address; what it does not say stays. What is not here is said, and the address put right.
  // Returns whether it named a head.
  read() {
    const said = new URLSearchParams(location.hash.slice(1)), asked = said.get("head"), colour = said.get("colour");
    const index = asked === null ? undefined : this.find.get(asked), wrong = [];
    if (index !== undefined) {
      this.chosen = index;
      this.logarithmic = said.get("axis") !== "linear";
    } else if (asked !== null) wrong.push(this.unmeasured(asked));
    if (colour === "kind" || this.data.statistics.some((each) => each.name === colour)) this.colour = colour;
    else if (colour !== null) wrong.push(`no statistic is called ${colour}`);
    this.say(wrong);
    if (wrong.length) history.replaceState(null, "", this.address());
    return asked !== null;
  }

  unmeasured(place) {
    const [layer, head] = place.split(".");
    const measured = `layers ${this.runs()}, heads 0 to ${this.columns - 1}`;
    return `${/^\d+\.\d+$/.test(place) ? `layer ${layer}, head ${head}` : `head ${place}`} was not measured (${measured})`;
  }

  runs() {
    const from = this.layers.filter((each) => !this.layers.includes(each - 1)), to = this.layers.filter((each) => !this.layers.includes(each + 1));
    return from.map((each, i) => (each === to[i] ? `${each}` : `${each} to ${to[i]}`)).join(", ");
  }

  say(wrong) {
    const head = this.data.heads[this.chosen], words = wrong.join("; ");
    this.note.hidden = !wrong.length;
    this.note.textContent = wrong.length ? `${words[0].toUpperCase()}${words.slice(1)}. Shown is layer ${head.layer}, head ${head.head}.` : "";
  }
}

async function unpacked(text) {
  if (!window.DecompressionStream) throw new Error("this browser cannot unpack its data: take one from 2023 or later");
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

for (const place of document.querySelectorAll("[data-heads]")) {
  unpacked(place.nextElementSibling.textContent).then((data) => {
    const map = new HeadMap(place, data);
    place.dataset.heads = "ready";
    if (map.named) place.scrollIntoView();
    window.addEventListener("hashchange", () => { map.read(); map.paint(); map.show(); });
  }).catch((error) => { place.textContent = `This map could not be drawn: ${error.message}.`; });
}
