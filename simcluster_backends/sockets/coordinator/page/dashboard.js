// Shows what a coordinator knows of its run. The token is kept in a variable and sent in a header: it is in no address,
// no storage and no log. All text goes in as text.
"use strict";
const POLL_MS = 1000, HIDDEN_MS = 10000, MOST_POINTS = 1200, MOST_SAMPLES = 240, MOST_ROWS = 256;
const $ = (id) => document.getElementById(id);
let token = null, epoch = null, history_ = [], samples = [], timer = 0, latest = null;

// numbers as people read them
const number = (value, digits = 4) => (value === null || value === undefined ? "–" : String(Number(value.toPrecision(digits))));
function scaled(value, units, base) {
  if (value === null || value === undefined) return "–";
  let place = 0;
  while (Math.abs(value) >= base && place < units.length - 1) { value /= base; place += 1; }
  return `${number(value, 3)} ${units[place]}`;
}
const size = (bytes) => scaled(bytes, ["B", "kB", "MB", "GB", "TB"], 1000);
const percent = (value) => (value === null || value === undefined ? "–" : `${Math.round(value)} %`);
const rate = (bytes) => (bytes === null ? "–" : scaled(bytes * 8, ["bps", "kbps", "Mbps", "Gbps", "Tbps"], 1000));
function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value > 0 && value < 1) return value < 1e-3 ? `${number(value * 1e6, 3)} us` : `${number(value * 1e3, 3)} ms`;
  if (value < 120) return `${number(value, 3)} s`;
  return value < 7200 ? `${number(value / 60, 3)} min` : `${number(value / 3600, 3)} h`;
}

// elements
function element(kind, classes, text) {
  const made = document.createElement(kind);
  if (classes) made.className = classes;
  if (text !== undefined) made.textContent = text;
  return made;
}
function shape(kind, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}
function table(id, titles, rows) {
  // titles: [title, whether its cells are words]; a row: [cells, class]
  const head = element("tr");
  for (const [title, words] of titles) head.append(element("th", words ? "words" : "", title));
  const body = rows.slice(0, MOST_ROWS).map(([cells, classes]) => {
    const row = element("tr", classes);
    cells.forEach((cell, place) => row.append(element("td", titles[place][1] ? "words" : "", cell)));
    return row;
  });
  if (rows.length > MOST_ROWS) {
    const row = element("tr");
    row.append(element("td", "words", `and ${rows.length - MOST_ROWS} more`));
    body.push(row);
  }
  $(id).replaceChildren(head, ...body);
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
function drawCharts() {
  $("charts").replaceChildren();
  const of = (key) => history_.filter((moment) => moment[key] !== null).map((moment) => [moment.elapsed_s, moment[key]]);
  // moments repeat the last evaluation
  const news = history_.filter((moment, place) => !place || moment.eval_step !== history_[place - 1].eval_step);
  const evaluated = (key) => news.filter((moment) => moment[key] !== null).map((moment) => [moment.elapsed_s, moment[key]]);
  const sent = [];
  for (let place = 1; place < history_.length; place += 1) {
    const span = history_[place].elapsed_s - history_[place - 1].elapsed_s;
    if (span > 0) sent.push([history_[place].elapsed_s, (history_[place].bytes_sent - history_[place - 1].bytes_sent) / span]);
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
    const words = link ? `${line.name}: ${rate(link.forward_Bps)} there, ${rate(link.backward_Bps)} back` : line.name;
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

// the whole page
function show(status) {
  const run = status.run;
  $("board").hidden = false;
  table("workers", [["worker", true], ["rank", false], ["state", true], ["address", true], ["silent", false]],
    status.workers.map((worker) => [[worker.name, worker.rank === null ? "–" : String(worker.rank), worker.state, worker.address || "–", seconds(worker.silent_s)], worker.state === "lost" ? "lost" : ""]));
  $("foot").textContent = `simcluster ${status.version}; epoch ${status.epoch}; a worker is lost after ${seconds(status.dead_s)} of silence`;
  for (const part of ["cards", "warnings", "network"]) $(part).hidden = !run;
  if (!run) { $("state").textContent = "no run yet"; return; }
  const warned = new Set(run.warnings.filter((warning) => warning.kind === "straggler").map((warning) => warning.name));
  document.title = `${run.name}: ${run.state}, step ${run.step}`;
  $("name").textContent = run.name;
  $("state").textContent = run.state;
  $("state").className = `pill ${run.state}`;
  $("about").textContent = `${run.algorithm} on ${run.topology}, ${run.world_size} nodes, seed ${run.seed}${run.attempt > 1 ? `, attempt ${run.attempt}` : ""}`;
  if (run.error) trouble(run.error);
  const cards = [["step", run.steps === null ? run.step : `${run.step} of ${run.steps}`], ["loss", number(run.loss)], ["held-out loss", number(run.eval_loss)], ["steps a second", number(run.steps_per_s, 3)],
    ["running for", seconds(run.elapsed_s)], ["to go", seconds(run.remaining_s)]];
  $("cards").replaceChildren(...cards.map(([title, text]) => {
    const card = element("div");
    card.append(element("dt", "", title), element("dd", "", text));
    return card;
  }));
  $("warnings").replaceChildren(...run.warnings.slice(0, 12).map((warning) => element("li", warning.kind, warning.text)));
  drawCharts();
  drawMap(run, warned);
  drawTimeline(run);
  table("nodes", [["rank", false], ["node", true], ["state", true], ["step", false], ["steps/s", false], ["a step's work", false], ["loss", false], ["staleness", false], ["sent", false], ["memory", false], ["CPU", false], ["waits for", true]],
    run.nodes.map((node) => [[String(node.rank), node.name, node.state, String(node.step), number(node.steps_per_s, 3), seconds(node.compute_s_per_step), number(node.loss), number(node.staleness), size(node.bytes_sent), size(node.rss_bytes), percent(node.cpu_percent), node.computing ? "" : node.waits.join(", ")], node.state === "lost" ? "lost" : warned.has(node.name) ? "warned" : ""]));
  table("links", [["link", true], ["use", false], ["there", false], ["back", false], ["bandwidth", false], ["carried", false]],
    [...run.links].sort((a, b) => (b.busy_fraction || 0) - (a.busy_fraction || 0)).map((link) => [[link.name, link.busy_fraction === null ? "–" : `${Math.round(100 * link.busy_fraction)} %`, rate(link.forward_Bps), rate(link.backward_Bps), rate(link.capacity_Bps), size(link.bytes)], ""]));
}
function trouble(text) {
  $("trouble").textContent = text;
  $("trouble").hidden = !text;
}
async function get(path) {
  const answer = await fetch(path, { headers: { Authorization: `Bearer ${token}` }, cache: "no-store", credentials: "omit" });
  if (answer.status === 401) throw new Error("refused");
  if (!answer.ok) throw new Error(`the coordinator says ${answer.status}`);
  return answer.json();
}
async function poll() {
  try {
    const status = await get("/status");
    if (status.epoch !== epoch || history_.length > MOST_POINTS) {
      if (status.epoch !== epoch) samples = [];
      epoch = status.epoch;
      history_ = [];
    }
    const after = history_.length ? history_[history_.length - 1].elapsed_s : -1;
    history_.push(...(await get(`/history?after_s=${after}`)));
    trouble("");
    latest = status;
    $("ask").hidden = true;
    show(status);
  } catch (error) {
    if (error.message === "refused") {
      token = null;
      $("ask").hidden = false;
      $("board").hidden = true;
      trouble("This is not the coordinator's token.");
      return;
    }
    trouble(`${error instanceof TypeError ? "The coordinator does not answer" : error.message}; asked again soon. What is below was true before.`);
  }
  timer = setTimeout(poll, document.hidden ? HIDDEN_MS : POLL_MS);
}
$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  token = $("token").value.trim();
  $("token").value = "";
  clearTimeout(timer);
  poll();
});
window.addEventListener("resize", () => { if (latest && latest.run) { drawCharts(); } });
