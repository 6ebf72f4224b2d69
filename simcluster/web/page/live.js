// Draws a run in progress: its numbers, warnings, curves, network, and what each node does.
import { $, element, number, percent, rate, seconds, shape, size, table } from "./dom.js";

const MOST_SAMPLES = 240;
let samples = [];

export function liveView(root) {
  // makes the places that `drawRun` fills
  samples = [];
  const section = (title, ...content) => {
    const made = element("section");
    made.append(element("h2", "", title), ...content);
    return made;
  };
  const named = (kind, id, label) => {
    const made = kind === "svg" ? shape(kind, { role: "img" }) : element(kind);
    made.id = id;
    if (label) made.setAttribute("aria-label", label);
    return made;
  };
  const wide = (content) => {
    const made = element("div", "wide");
    made.append(content);
    return made;
  };
  const key = element("p", "key");
  for (const what of ["computing", "waiting", "ended", "lost"]) key.append(element("i", what), what);
  const warnings = named("ul", "warnings", "warnings");
  warnings.setAttribute("aria-live", "polite");
  const mapkey = element("p", "key");
  mapkey.id = "mapkey";
  const network = section("Network", wide(named("svg", "map", "The topology and how busy its links are")), mapkey,
    wide(named("table", "links", "links")));
  network.id = "network";
  root.replaceChildren(
    named("dl", "numbers"), warnings, section("Loss and rates", named("div", "charts")), network,
    section("What each node does", key, named("svg", "timeline", "What each node did since this page was opened")),
    section("Nodes", wide(named("table", "nodes", "nodes"))));
}

// charts
function ticks(low, high, count) {
  const raw = (high - low) / count || 1, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((found) => found >= raw);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step / 1e6; at += step) found.push(Number(at.toPrecision(12)));
  return found;
}
function chart(figure, title, points, form) {
  const caption = element("figcaption"), value = element("span");
  caption.append(element("span", "", title), value);
  figure.append(caption);
  const width = Math.max(240, figure.clientWidth), height = 190, left = 70, bottom = 22, top = 8, right = 8;
  const drawn = shape("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": title });
  const ys = points.map((point) => point[1]);
  const xs = [points[0][0], Math.max(points[points.length - 1][0], points[0][0] + 1e-9)];
  let low = Math.min(...ys), high = Math.max(...ys);
  if (low >= 0) low = 0;
  if (high <= low) high = low + 1;
  const x = (at) => left + ((at - xs[0]) / (xs[1] - xs[0])) * (width - left - right);
  const y = (at) => height - bottom - ((at - low) / (high - low)) * (height - bottom - top);
  for (const at of ticks(low, high, 4)) {
    drawn.append(shape("line", { class: "grid", x1: left, x2: width - right, y1: y(at), y2: y(at) }));
    drawn.append(shape("text", { x: left - 6, y: y(at) + 4, "text-anchor": "end" }, form(at)));
  }
  for (const at of ticks(xs[0], xs[1], 5)) {
    drawn.append(shape("text", { x: x(at), y: height - 6, "text-anchor": "middle" }, seconds(at)));
  }
  const path = points.map(([at, found], place) => `${place ? "L" : "M"}${x(at).toFixed(1)} ${y(found).toFixed(1)}`);
  drawn.append(shape("path", { class: "curve", d: path.join("") }));
  const last = points[points.length - 1];
  drawn.append(shape("circle", { class: "dot", cx: x(last[0]), cy: y(last[1]), r: 3 }));
  value.textContent = form(last[1]);
  drawn.addEventListener("pointermove", (event) => {
    const box = drawn.getBoundingClientRect();
    const at = xs[0] + ((event.clientX - box.left) / box.width * width - left) / (width - left - right) * (xs[1] - xs[0]);
    const near = points.reduce((a, b) => (Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a));
    value.textContent = `${form(near[1])} at ${seconds(near[0])}`;
  });
  drawn.addEventListener("pointerleave", () => { value.textContent = form(last[1]); });
  figure.append(drawn);
}
export function drawCharts(history) {
  $("charts").replaceChildren();
  const of = (key) => history.filter((moment) => moment[key] !== null).map((moment) => [moment.elapsed_s, moment[key]]);
  // moments repeat the last evaluation
  const news = history.filter((moment, place) => !place || moment.eval_step !== history[place - 1].eval_step);
  const evaluated = (key) => news.filter((moment) => moment[key] !== null).map((moment) => [moment.elapsed_s, moment[key]]);
  const sent = [];
  for (let place = 1; place < history.length; place += 1) {
    const span = history[place].elapsed_s - history[place - 1].elapsed_s;
    if (span > 0) sent.push([history[place].elapsed_s, (history[place].bytes_sent - history[place - 1].bytes_sent) / span]);
  }
  const found = [["training loss", of("loss"), number], ["held-out loss", evaluated("eval_loss"), number], ["held-out accuracy", evaluated("eval_accuracy"), number], ["steps a second", of("steps_per_s"), number],
    ["sent by all nodes", sent, rate], ["staleness, the largest", of("staleness"), number]];
  // before the first step all moments are at time 0, and there is no axis
  const drawn = found.filter(([, points]) => points.length > 1 && points[points.length - 1][0] > points[0][0]);
  const figures = drawn.map(() => element("figure"));
  $("charts").append(...figures); // all of them first: how wide one is depends on how many there are
  drawn.forEach((what, place) => chart(figures[place], ...what));
}

// the network
const busyClass = (busy) => `busy${[0.05, 0.25, 0.5, 0.8].filter((step) => (busy || 0) >= step).length}`;
function drawMap(run, warned) {
  const map = run.map, drawn = $("map");
  drawn.replaceChildren();
  drawn.parentElement.hidden = !map;
  if (!map) { $("mapkey").textContent = "Too many nodes for a map."; return; }
  $("mapkey").textContent = "A link's colour and number: how much of its bandwidth the busier way used in the last seconds.";
  const xs = map.spots.map((spot) => spot.x), ys = map.spots.map((spot) => spot.y), unit = 170, margin = 70;
  const x = (at) => (at - Math.min(...xs)) * unit + margin, y = (at) => (at - Math.min(...ys)) * unit * 0.75 + 40;
  const width = x(Math.max(...xs)) + margin, height = y(Math.max(...ys)) + 40;
  drawn.setAttribute("viewBox", `0 0 ${width} ${height}`);
  drawn.style.minWidth = `${Math.min(width, Math.max(320, 0.85 * width))}px`;
  drawn.style.maxWidth = `${width * 1.3}px`;
  const spots = new Map(map.spots.map((spot) => [spot.name, spot]));
  const links = new Map(run.links.map((link) => [link.name, link]));
  const nodes = new Map(run.nodes.map((node) => [node.name, node]));
  const labels = [];
  for (const line of map.lines) {
    const a = spots.get(line.a), b = spots.get(line.b), link = links.get(line.name), busy = link ? link.busy_fraction : null;
    const made = shape("line", { class: busyClass(busy), x1: x(a.x), y1: y(a.y), x2: x(b.x), y2: y(b.y), "stroke-width": 3 + 5 * Math.min(1, busy || 0) });
    const words = link ? `${line.name}: ${rate(link.forward_Bps)} forward, ${rate(link.backward_Bps)} backward` : line.name;
    made.append(shape("title", {}, words));
    drawn.append(made);
    if (busy === null) continue;
    // beside its line, and not in the middle, where lines of a square cross
    const along = [x(b.x) - x(a.x), y(b.y) - y(a.y)], long = Math.hypot(...along) || 1, side = along[0] < 0 ? -1 : 1;
    const at = [x(a.x) + 0.3 * along[0] + side * 18 * along[1] / long, y(a.y) + 0.3 * along[1] - side * 12 * along[0] / long];
    labels.push(shape("text", { class: "rate", x: at[0], y: at[1] }, `${Math.round(100 * busy)} %`));
  }
  for (const spot of map.spots) {
    const node = nodes.get(spot.name), step = node ? `step ${node.step}` : "";
    const wide = Math.max(56, 9 * spot.name.length + 18, 8 * step.length + 18);
    const state = node && node.state === "lost" ? " lost" : warned.has(spot.name) ? " warned" : "";
    drawn.append(shape("rect", { class: `spot ${spot.kind}${state}`, x: x(spot.x) - wide / 2, y: y(spot.y) - 19, width: wide, height: 38, rx: 7 }));
    drawn.append(shape("text", { class: "title", x: x(spot.x), y: y(spot.y) - (node ? 7 : 0) }, spot.name));
    if (node) drawn.append(shape("text", { x: x(spot.x), y: y(spot.y) + 9 }, step));
  }
  drawn.append(...labels);
}

// what each node does
const doing = (node) => (node.state === "lost" ? "lost" : node.state === "ended" ? "ended" : node.state === "expected" ? null : node.computing ? "computing" : "waiting");
function drawTimeline(run) {
  const nodes = run.nodes.slice(0, 64), drawn = $("timeline");
  samples.push(new Map(run.nodes.map((node) => [node.name, doing(node)])));
  if (samples.length > MOST_SAMPLES) samples.shift();
  const width = Math.max(280, drawn.parentElement.clientWidth), row = 20;
  const left = 14 + 7.2 * Math.max(4, ...nodes.map((node) => node.name.length));
  const wide = (width - left) / Math.max(60, samples.length);
  drawn.setAttribute("viewBox", `0 0 ${width} ${nodes.length * row + 4}`);
  drawn.style.height = `${nodes.length * row + 4}px`;
  drawn.replaceChildren();
  nodes.forEach((node, place) => {
    drawn.append(shape("text", { class: "title", x: 0, y: place * row + 14 }, node.name));
    for (let from = 0; from < samples.length;) {
      const what = samples[from].get(node.name);
      let to = from + 1;
      while (to < samples.length && samples[to].get(node.name) === what) to += 1;
      if (what) drawn.append(shape("rect", { class: what, x: left + from * wide, y: place * row + 3, width: (to - from) * wide, height: row - 6 }));
      from = to;
    }
  });
}

// the whole run
export function drawRun(run, history) {
  const warned = new Set(run.warnings.filter((warning) => warning.kind === "straggler").map((warning) => warning.name));
  const cards = [["step", run.steps === null ? run.step : `${run.step} of ${run.steps}`], ["loss", number(run.loss)], ["held-out loss", number(run.eval_loss)], ["steps a second", number(run.steps_per_s, 3)],
    [run.backend === "sim" ? "virtual time" : "running for", seconds(run.elapsed_s)], ["to go", seconds(run.remaining_s)]];
  $("numbers").replaceChildren(...cards.map(([title, text]) => {
    const card = element("div");
    card.append(element("dt", "", title), element("dd", "", text));
    return card;
  }));
  $("warnings").replaceChildren(...run.warnings.slice(0, 12).map((warning) => element("li", warning.kind, warning.text)));
  drawCharts(history);
  drawMap(run, warned);
  drawTimeline(run);
  table("nodes", [["rank", false], ["node", true], ["state", true], ["step", false], ["steps/s", false], ["a step's work", false], ["loss", false], ["staleness", false], ["sent", false], ["memory", false], ["CPU", false], ["waits for", true]],
    run.nodes.map((node) => [[String(node.rank), node.name, node.state, String(node.step), number(node.steps_per_s, 3), seconds(node.compute_s_per_step), number(node.loss), number(node.staleness), size(node.bytes_sent), size(node.rss_bytes), percent(node.cpu_percent), node.computing ? "" : node.waits.join(", ")], node.state === "lost" ? "lost" : warned.has(node.name) ? "warned" : ""]));
  // forward is from the end that a link's name has first
  table("links", [["link", true], ["use", false], ["forward", false], ["backward", false], ["bandwidth", false], ["carried", false]],
    [...run.links].sort((a, b) => (b.busy_fraction || 0) - (a.busy_fraction || 0)).map((link) => [[link.name, link.busy_fraction === null ? "–" : `${Math.round(100 * link.busy_fraction)} %`, rate(link.forward_Bps), rate(link.backward_Bps), rate(link.capacity_Bps), size(link.bytes)], ""]));
}
