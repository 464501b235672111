// Small plots as SVG elements, in the colours of the page. Text is set as text, never as markup.
const SVG = "http://www.w3.org/2000/svg";

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// Numbers as people read them: four digits, no exponent unless it is needed.
function shown(value) {
  if (value === null || value === undefined) return "undefined";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 1e-4 || size >= 1e6) return value.toExponential(2).replace("e+", "e");
  return String(Number(value.toPrecision(size >= 1e4 ? 6 : 3))).replace("-", "−");
}

function whole(value) {
  return value >= 4096 && value % 1024 === 0 ? `${value / 1024}k` : String(value).replace("-", "−");
}

const linear = (value) => value;
const symlog = (value) => Math.sign(value) * Math.log1p(Math.abs(value));
const logarithm = (value) => Math.log(value);

function scale(transform, domain, range) {
  const [low, high] = domain.map(transform);
  const slope = (range[1] - range[0]) / (high - low || 1);
  return (value) => range[0] + (transform(value) - low) * slope;
}

function linearTicks(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((each) => each * power >= rough) * power;
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

// 0 and powers of two either way, where they have room.
function offsetTicks(low, high, place) {
  const ahead = Array.from({ length: Math.floor(Math.log2(Math.max(1, high, -low))) + 1 }, (_, i) => 2 ** i);
  const all = [0, ...ahead, ...ahead.map((each) => -each)].filter((each) => each >= low && each <= high);
  const kept = [];
  for (const tick of all) if (kept.every((other) => Math.abs(place(tick) - place(other)) >= 30)) kept.push(tick);
  return kept;
}

function decadeTicks(low, high) {
  const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => 10 ** (first + i));
}

// An empty plot with axes; `x` and `y` are {transform, domain, title, ticks, label}. It is drawn at its real size, so that
// letters are as large on a telephone as elsewhere.
function frame(width, height, x, y, description) {
  const box = { left: 56, right: width - 12, top: 10, bottom: height - 40 };
  const across = scale(x.transform, x.domain, [box.left, box.right]);
  const up = scale(y.transform || linear, y.domain, [box.bottom, box.top]);
  const axes = draw("g", { class: "axes" });
  for (const tick of (y.ticks || ((low, high) => linearTicks(low, high, 5)))(...y.domain)) {
    axes.append(draw("line", { x1: box.left, x2: box.right, y1: up(tick), y2: up(tick) }));
    axes.append(draw("text", { x: box.left - 6, y: up(tick) + 4, "text-anchor": "end" }, (y.label || shown)(tick)));
  }
  for (const tick of x.ticks(...x.domain, across)) {
    axes.append(draw("line", { x1: across(tick), x2: across(tick), y1: box.bottom, y2: box.bottom + 4 }));
    axes.append(draw("text", { x: across(tick), y: box.bottom + 16, "text-anchor": "middle" }, (x.label || whole)(tick)));
  }
  axes.append(draw("text", { x: (box.left + box.right) / 2, y: height - 6, "text-anchor": "middle" }, x.title));
  axes.append(draw("text", { transform: `translate(12 ${(box.top + box.bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, y.title));
  const svg = draw("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": description }, axes);
  return { svg, across, up, box };
}

// Outline of a curve with gaps where it is null.
function outline(points) {
  let path = "", pen = false;
  for (const [x, y] of points) {
    if (y === null) { pen = false; continue; }
    path += `${pen ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    pen = true;
  }
  return path;
}
