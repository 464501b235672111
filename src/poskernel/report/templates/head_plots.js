// What is known of one head: its curve with a band, spectrum, attention by distance, attended tokens, all its numbers.

// g and its band in nats, null where the head has no such offset.
function curveOf(head) {
  const nats = (steps) => head.base + head.step * steps;
  return {
    g: head.g.map((each) => (each === null ? null : nats(each))),
    low: head.g.map((each, i) => (each === null ? null : nats(each - head.below[i]))),
    high: head.g.map((each, i) => (each === null ? null : nats(each + (head.above || head.below)[i]))),
  };
}

function curvePlot(width, offsets, head, other, logarithmic, band) {
  const curve = curveOf(head), compared = other && curveOf(other);
  const known = [...curve.low, ...curve.high, ...(compared ? compared.g : [])].filter((each) => each !== null);
  const room = (Math.max(...known) - Math.min(...known) || 1) * 0.04;
  const last = offsets.findLastIndex((_, i) => curve.g[i] !== null || (compared && compared.g[i] !== null));
  const ends = [offsets.find((_, i) => curve.g[i] !== null), offsets[last]];
  const x = {
    transform: logarithmic ? symlog : linear,
    domain: ends,
    ticks: (low, high, place) => (logarithmic ? offsetTicks(low, high, place) : linearTicks(low, high, Math.min(8, width / 60)).filter(Number.isInteger)),
    title: "offset: query − key position (tokens)",
  };
  const y = { domain: [Math.min(...known) - room, Math.max(...known) + room], title: "g(offset), nats" };
  const plot = frame(width, 280, x, y, `g by offset of layer ${head.layer}, head ${head.head}, with its ${band}`);
  const line = (values) => outline(offsets.map((offset, i) => [plot.across(offset), values[i] === null ? null : plot.up(values[i])]));
  const inside = offsets.map((_, i) => i).filter((i) => curve.g[i] !== null);
  const edge = (values, order) => order.map((i) => `${plot.across(offsets[i]).toFixed(1)} ${plot.up(values[i]).toFixed(1)}`).join("L");
  plot.svg.append(draw("path", { class: "band", d: `M${edge(curve.high, inside)}L${edge(curve.low, inside.toReversed())}Z` }));
  if (compared) plot.svg.append(draw("path", { class: "other", d: line(compared.g) }));
  plot.svg.append(draw("path", { class: "curve", d: line(curve.g) }));
  for (const i of inside) {
    if (offsets.length <= 80 || Math.abs(offsets[i]) <= 8) plot.svg.append(draw("circle", { class: "dot", cx: plot.across(offsets[i]), cy: plot.up(curve.g[i]), r: 2.2 }));
  }
  readout(plot, offsets, curve, inside);
  return plot.svg;
}

// The value at the offset under the pointer.
function readout(plot, offsets, curve, inside) {
  const words = draw("text", { class: "readout", x: plot.box.right - 4, y: plot.box.top + 12, "text-anchor": "end" });
  const mark = draw("circle", { class: "mark", r: 4, visibility: "hidden" });
  plot.svg.append(words, mark);
  plot.svg.addEventListener("pointermove", (event) => {
    const at = event.clientX - plot.svg.getBoundingClientRect().left;
    const near = inside.reduce((best, i) => (Math.abs(plot.across(offsets[i]) - at) < Math.abs(plot.across(offsets[best]) - at) ? i : best), inside[0]);
    words.textContent = `offset ${whole(offsets[near])}: ${shown(curve.g[near])} (${shown(curve.low[near])} to ${shown(curve.high[near])})`;
    for (const [name, value] of [["cx", plot.across(offsets[near])], ["cy", plot.up(curve.g[near])], ["visibility", "visible"]]) mark.setAttribute(name, value);
  });
  plot.svg.addEventListener("pointerleave", () => { words.textContent = ""; mark.setAttribute("visibility", "hidden"); });
}

// Lines whose wavelengths are hardly told apart have huge amplitudes that cancel: those above the range of g have no place on
// the scale, and are triangles at its top.
function spectrumPlot(width, lines, fourier, range) {
  const turning = lines ? lines.frequencies.filter((each) => each > 0) : [];
  const all = [...turning, ...(fourier ? fourier.frequencies : [])];
  const tallest = lines ? Math.max(...lines.amplitudes.filter((each) => each <= range)) : Math.max(...fourier.power);
  const highest = tallest > 0 && Number.isFinite(tallest) ? tallest : 1;
  const x = {
    transform: logarithm, domain: [Math.min(...all) * 0.9, Math.max(Math.PI, ...all)], ticks: decadeTicks, label: shown,
    title: "frequency (radians a token, logarithmic)",
  };
  const y = { domain: [0, highest * 1.12], title: lines ? "amplitude, nats" : "share of power" };
  const plot = frame(width, 220, x, y, "Spectrum of g");
  if (fourier) {
    const most = Math.max(...fourier.power) || 1;
    const points = fourier.frequencies.map((each, i) => `${plot.across(each).toFixed(1)} ${plot.up((fourier.power[i] / most) * highest).toFixed(1)}`);
    const ends = [fourier.frequencies[0], fourier.frequencies.at(-1)].map((each) => plot.across(each).toFixed(1));
    plot.svg.append(draw("path", { class: "power", d: `M${ends[0]} ${plot.box.bottom}L${points.join("L")}L${ends[1]} ${plot.box.bottom}Z` }));
  }
  if (lines) {
    lines.frequencies.forEach((frequency, i) => {
      if (!(frequency > 0)) return;
      const amplitude = lines.amplitudes[i], beyond = amplitude > range, kind = lines.resolved[i] ? "line" : "line open";
      const place = plot.across(frequency), top = beyond ? plot.box.top + 4 : plot.up(amplitude);
      if (!beyond) plot.svg.append(draw("line", { class: kind, x1: place, x2: place, y1: plot.box.bottom, y2: top }));
      const end = beyond ? draw("path", { class: `${kind} end`, d: `M${place - 4} ${top + 3}l4 -7l4 7Z` }) : draw("circle", { class: `${kind} end`, cx: place, cy: top, r: 3 });
      end.append(draw("title", {}, `wavelength ${shown((2 * Math.PI) / frequency)} tokens, amplitude ${shown(amplitude)} nats${beyond ? ", off the scale" : ""}`));
      plot.svg.append(end);
    });
  }
  return plot.svg;
}

function distancePlot(width, distance) {
  const bins = distance.mass.length;
  const highest = Math.max(...distance.high, ...distance.mass, ...distance.even);
  const x = { transform: linear, domain: [0, bins], ticks: () => distance.mass.map((_, i) => i + 0.5), label: (at) => whole(distance.edges[Math.floor(at)]), title: "distance in tokens (start of each bar)" };
  const y = { domain: [0, highest * 1.05], title: "share of attention", label: (value) => `${shown(value * 100)}%` };
  const plot = frame(width, 220, x, y, "Attention by distance");
  const wide = plot.across(1) - plot.across(0);
  distance.mass.forEach((mass, i) => {
    const left = plot.across(i), middle = left + wide / 2, last = distance.edges[i + 1] - 1;
    const name = last > distance.edges[i] ? `distance ${distance.edges[i]} to ${last}` : `distance ${last}`;
    const words = `${name}: ${shown(mass * 100)}% (${shown(distance.low[i] * 100)}% to ${shown(distance.high[i] * 100)}%); spread evenly ${shown(distance.even[i] * 100)}%`;
    plot.svg.append(draw("rect", { class: "bar", x: left + wide * 0.15, width: wide * 0.7, y: plot.up(mass), height: plot.box.bottom - plot.up(mass) }, draw("title", {}, words)));
    plot.svg.append(draw("line", { class: "whisker", x1: middle, x2: middle, y1: plot.up(Math.max(0, distance.low[i])), y2: plot.up(distance.high[i]) }));
    plot.svg.append(draw("line", { class: "even", x1: left + wide * 0.08, x2: left + wide * 0.92, y1: plot.up(distance.even[i]), y2: plot.up(distance.even[i]) }));
  });
  return plot.svg;
}

// A token as one sees it: breaks and blanks have signs.
function visible(word) {
  const signs = word.replaceAll("\n", "↵").replaceAll("\t", "⇥").replaceAll("\r", "");
  return signs.trim() === "" ? "␣".repeat(Math.max(1, Math.min(signs.length, 8))) : signs;
}

function passage(words, position, before, after) {
  const part = (from, to) => words.slice(Math.max(0, from), Math.max(0, to)).map(visible).join("");
  return make("span", { class: "passage" }, part(position - before, position), make("mark", {}, visible(words[position])), part(position + 1, position + 1 + after));
}

function tokenRows(words, tokens) {
  return tokens.queries.map((query, row) => {
    const list = make("ol", {});
    tokens.keys[row].forEach((key, i) => {
      const weight = tokens.weights[row][i], distance = query - key;
      const where = distance === 0 ? "itself" : distance > 0 ? `${distance} back` : `${-distance} ahead`;
      const bar = make("span", { class: "weight" }, `${shown(Math.round(weight * 1000) / 10)}%`);
      bar.style.setProperty("--weight", `${(weight * 100).toFixed(1)}%`);
      list.append(make("li", {}, bar, make("span", { class: "where" }, where), passage(words, key, 3, 2)));
    });
    return make("div", { class: "attended" }, make("p", {}, make("span", { class: "where" }, `position ${query}`), " ", passage(words, query, 10, 0)), list);
  });
}

// A statistic of one head in words: yes or no, a number, or why there is none.
function valueWords(found, place) {
  const value = found.values[place];
  if (found.wide.includes(place)) return "undetermined";
  if (value !== null && found.form === "truth") return value ? "yes" : "no";
  return found.form === "whole" && value !== null ? String(value).replace("-", "−") : shown(value);
}

function intervalWords(found, place) {
  return found.low && found.low[place] !== null ? `${shown(found.low[place])} to ${shown(found.high[place])}` : "";
}

function numberTable(statistics, place) {
  const body = make("tbody", {});
  for (const each of statistics) {
    const name = make("th", { scope: "row" }, each.label, " ", make("code", {}, each.name), make("small", {}, each.meaning));
    const value = each.wide.includes(place) ? "?" : valueWords(each, place);
    body.append(make("tr", {}, name, make("td", { class: "number" }, value), make("td", { class: "number" }, intervalWords(each, place))));
  }
  const names = ["statistic", "value", "95% interval"].map((name, i) => make("th", { scope: "col", ...(i ? { class: "number" } : {}) }, name));
  return make("table", {}, make("thead", {}, make("tr", {}, ...names)), body);
}
