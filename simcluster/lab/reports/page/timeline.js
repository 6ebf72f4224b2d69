// The activity of nodes in a window of the run, above an overview of how busy their devices were.
import { $, percent } from "./dom.js";
import { save, tools } from "./figures.js";
import { explainEmpty, inflated } from "./inflate.js";
import { SpanView } from "./span_view.js";

const OVERVIEW_PX = 420; // of the overview, for as many nodes as fit

function startTimeline(buffer) {
  const head = JSON.parse($("span-head").textContent), data = new SpanData(head, buffer);
  const many = data.nodes > head.rows;
  const detail = new SpanView($("timeline"), data, { kinds: [0, 1, 2], rowPx: many ? 26 : 34, unit: head.unit });
  const overview = new SpanView($("busy"), data, { kinds: [0], rowPx: many ? 6 : 22, unit: head.unit });
  const perPage = Math.floor(OVERVIEW_PX / overview.rowPx);
  const pages = new Map([[detail, { size: many ? head.rows : data.nodes, at: 0 }], [overview, { size: many ? perPage : data.nodes, at: 0 }]]);
  const ranks = Array.from({ length: data.nodes }, (_, rank) => rank);
  let order = ranks;
  overview.deepest = deepestShare(data, ranks);

  function show(view) {
    const page = pages.get(view);
    page.at = Math.max(0, Math.min(page.at, order.length - 1));
    view.nodes = order.slice(page.at, page.at + page.size);
    view.draw();
    const last = Math.min(page.at + page.size, order.length), root = view.place.nextElementSibling;
    root.hidden = order.length <= page.size && order.length === data.nodes;
    root.querySelector("span").textContent = order.length ? `nodes ${page.at + 1} to ${last} of ${order.length.toLocaleString("en")}` : "no node has this name";
    root.querySelector(".earlier").disabled = page.at === 0;
    root.querySelector(".later").disabled = last >= order.length;
  }
  const showAll = () => { show(detail); show(overview); tellWindow(detail); };

  /** Show the window from *start*, in s, with the chosen length if the run is long enough. */
  function choose(start, length) {
    const shortest = data.elapsed_s * 1e-9, wide = Math.min(Math.max(length || 0, shortest), data.elapsed_s);
    detail.start = Math.min(Math.max(start || 0, 0), data.elapsed_s - wide);
    detail.end = detail.start + wide;
    $("window-from").value = Number((detail.start / head.unit[0]).toPrecision(9));
    $("window-length").value = Number((wide / head.unit[0]).toPrecision(9));
    for (const button of $("windows").children) {
      const [from, long] = head.windows[button.dataset.value];
      button.setAttribute("aria-pressed", String(Math.abs(from - detail.start) + Math.abs(long - wide) < 1e-6 * data.elapsed_s));
    }
    show(detail);
    tellWindow(detail);
  }
  const zoom = (factor, around = (detail.start + detail.end) / 2) => choose(around - (around - detail.start) * factor, (detail.end - detail.start) * factor);
  const pan = (share) => choose(detail.start + share * (detail.end - detail.start), detail.end - detail.start);

  for (const [id, work] of Object.entries({
    earlier: () => pan(-0.5), later: () => pan(0.5), closer: () => zoom(0.5), wider: () => zoom(2),
  })) $(`window-${id}`).addEventListener("click", work);
  for (const id of ["window-from", "window-length"]) {
    $(id).addEventListener("change", () => choose($("window-from").value * head.unit[0], $("window-length").value * head.unit[0]));
  }
  for (const button of $("windows").children) button.addEventListener("click", () => choose(...head.windows[button.dataset.value]));
  for (const [view, page] of pages) {
    const root = view.place.nextElementSibling;
    root.querySelector(".earlier").addEventListener("click", () => { page.at -= page.size; show(view); });
    root.querySelector(".later").addEventListener("click", () => { page.at += page.size; show(view); });
    selectable(view, choose, () => choose(0, data.elapsed_s));
    const heading = view === detail ? "Activity of the nodes" : "How busy each device was";
    view.canvas.setAttribute("aria-label", `${heading}, against time`);
    tools(root, [["Save picture", () => savePicture(view)], ["Save data", () => save(csvOfView(view), "text/csv", `${stem(view)}.csv`)]]);
  }
  const keys = { ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), "+": () => zoom(0.5), "-": () => zoom(2), Home: () => choose(0, data.elapsed_s) };
  detail.canvas.addEventListener("keydown", (event) => { if (keys[event.key]) { event.preventDefault(); keys[event.key](); } });
  const arrange = () => {
    const asked = $("node-name").value.trim().toLowerCase(), found = ranks.filter((rank) => data.name(rank).toLowerCase().includes(asked));
    order = $("node-order").value === "busy" ? busiestFirst(data, found) : found;
    for (const page of pages.values()) page.at = 0;
    showAll();
  };
  $("node-name").addEventListener("input", arrange);
  $("node-order").addEventListener("change", arrange);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showAll);
  new ResizeObserver(showAll).observe($("timeline"));
  $("node-controls").hidden = !many;
  const shown = data.nodes < head.all ? ` The page has the first ${data.nodes.toLocaleString("en")} of ${head.all.toLocaleString("en")} nodes.` : "";
  $("busy-status").textContent = `The full colour is ${percent(100 * overview.deepest)} of the time.${shown}`;
  choose(...Object.values(head.windows)[0]);
  show(overview);
  document.documentElement.dataset.spans = String(data.kept);
}

const busiestFirst = (data, nodes) => {
  const totals = new Map(nodes.map((node) => [node, data.total(node * KINDS.length)]));
  return [...nodes].sort((a, b) => totals.get(b) - totals.get(a) || a - b);
};

/** The largest share of a column of the overview, rounded up to 1, 2 or 5 times a power of ten, so that mostly idle devices differ visibly. */
function deepestShare(data, nodes) {
  let most = 0;
  for (const node of nodes) for (const share of data.columns(node * KINDS.length, 0, data.elapsed_s, 240).shares) most = Math.max(most, share);
  return [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5].find((limit) => most > 0 && most <= limit) ?? 1;
}

/** Describe what the window shows and what it leaves out. */
function tellWindow(view) {
  const { data } = view, long = view.end - view.start;
  let spans = 0;
  for (const node of view.nodes) for (const kind of view.kinds) spans += data.touching(node * KINDS.length + kind, view.start, view.end).length;
  const words = [`${seconds(view.start)} to ${seconds(view.end)} of ${seconds(data.elapsed_s)}`];
  if (!view.summed) words.push(`all ${spans.toLocaleString("en")} spans of the nodes shown`);
  else {
    words.push(`paler where shares of ${seconds(data.elapsed_s / data.parts)} stand for spans`);
    if (data.kept < data.spans) words.push(`this page has ${data.kept.toLocaleString("en")} of ${data.spans.toLocaleString("en")} spans, those of ${data.exact.map(([a, b]) => `${seconds(a)} to ${seconds(b)}`).join(", ")}; trace.json has all`);
    if (data.ended_s.some((time) => time !== null && time < view.end)) words.push("a thin line: the run recorded no single messages so late, only how long the device worked");
  }
  if (data.bands_left) words.push(`${data.bands_left.toLocaleString("en")} more spells of faults are not drawn`);
  const pixels = long / Math.max(1, view.width);
  if (!view.summed) words.push(`a column of the picture is ${seconds(pixels)}, its depth the share that spans cover`);
  $("window-status").textContent = `${words.join("; ")}.`;
}

/** Let a mouse choose a stretch of *view*: a drag calls *choose*, a double click *whole*. */
function selectable(view, choose, whole) {
  let from = null;
  const mark = document.createElement("div");
  mark.className = "selection";
  mark.hidden = true;
  view.place.append(mark);
  view.canvas.addEventListener("pointerdown", (event) => { if (event.pointerType === "mouse" && event.offsetX >= view.left) from = event.offsetX; });
  view.canvas.addEventListener("pointermove", (event) => {
    mark.hidden = from === null;
    if (from !== null) Object.assign(mark.style, { left: `${Math.min(from, event.offsetX)}px`, width: `${Math.abs(event.offsetX - from)}px` });
  });
  window.addEventListener("pointerup", (event) => {
    if (from !== null && event.target === view.canvas && Math.abs(event.offsetX - from) > 4) {
      const [a, b] = [view.time(from), view.time(event.offsetX)].sort((x, y) => x - y);
      choose(a, b - a);
    }
    from = null;
    mark.hidden = true;
  });
  view.canvas.addEventListener("dblclick", whole);
}

const stem = (view) => `${document.title}-${view.place.id}`.replace(/[^\w.-]+/g, "-");

function savePicture(view) {
  const made = document.createElement("canvas"), pen = made.getContext("2d");
  [made.width, made.height] = [view.canvas.width, view.canvas.height];
  pen.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--card").trim();
  pen.fillRect(0, 0, made.width, made.height);
  pen.drawImage(view.canvas, 0, 0);
  made.toBlob((blob) => save(blob, "image/png", `${stem(view)}.png`));
}

/** What *view* shows as CSV: single spans, or the share of each of 240 parts where those are not all here. */
function csvOfView(view) {
  const { data, start, end } = view, rows = [["node", "kind", "start_s", "length_s", "share", "tag", "peer", "bytes"]];
  for (const node of view.nodes) for (const kind of view.kinds) {
    const lane = node * KINDS.length + kind, name = data.name(node), word = KINDS[kind][0];
    if (data.isExact(node, start, end)) {
      for (const at of data.touching(lane, start, end)) {
        const peer = data.peers[at] < 0 ? "" : data.name(data.peers[at]);
        rows.push([name, word, data.starts[at], data.lengths[at], "", data.tags[data.tagsOf[at]] ?? "", peer, data.bytes[at]]);
      }
    } else {
      const { shares } = data.columns(lane, start, end, 240), long = (end - start) / 240;
      shares.forEach((share, at) => rows.push([name, word, start + at * long, long, share < 0 ? "" : share, "", "", ""]));
    }
  }
  return `${rows.map((row) => row.map(cell).join(",")).join("\n")}\n`;
}

if ($("spans")) {
  inflated("spans").then(startTimeline, (error) => explainEmpty([$("timeline"), $("busy")], error));
}
