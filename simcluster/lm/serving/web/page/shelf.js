// The picture of the shelf: nodes with their layers, memory and load, and the path of the current token through them.
import { $, element, number, percent, seconds, shape, size, table } from "./dom.js";

const WIDE = 300, HIGH = 78, GAP = 26, LEFT = 26, LOST = 46, LANE = WIDE - 10, SPAN_S = 3, MOST_MS = 1500, MOST_WHY = 44, MOST_UNUSED = 4;
const CARDS = [
  ["running", "answers being written"],
  ["waiting", "requests in the queue"],
  ["cache", "of the memory that keeps tokens once read"],
  ["prefilled", "tokens of prompts read so far"],
];
let shelf = null, drawn = [], loads = [], flight = 0;

export function drawShelf(found) {
  shelf = found;
  loads = [];
  flight += 1;
  const root = $("shelf"), parts = shelf.parts, chain = shelf.placement === "pipeline" || parts.length === 1;
  const top = (place) => 4 + place * (HIGH + GAP);
  const largest = Math.max(...parts.map((part) => part.weights_bytes + part.cache_bytes));
  const below = top(parts.length - 1) + HIGH + 4;
  root.setAttribute("viewBox", `0 0 ${WIDE} ${below + shelf.lost.length * (LOST + 8)}`);
  root.replaceChildren();
  drawn = parts.map((part, place) => {
    const y = top(place), inside = LANE - LEFT - 24, x = LEFT + 12;
    if (place) root.append(shape("path", { class: "way", d: `M${LANE} ${y - GAP}V${y}` }));
    const node = shape("rect", { class: "node", x: LEFT, y, width: WIDE - LEFT - 2, height: HIGH, rx: 10 });
    const [from, to] = part.layers, inChain = to - from > 1 ? `layers ${from} to ${to - 1}` : `layer ${from}`;
    const layers = chain ? inChain : shelf.placement === "tensor" ? `a share of ${to - from} layers` : `all ${to - from} layers${part.role ? `, ${part.role}` : ""}`;
    const load = shape("text", { x: LANE - 12, y: y + 20, "text-anchor": "end" }, "idle");
    const room = (part.weights_bytes + part.cache_bytes) / largest * inside, held = part.weights_bytes / largest * inside;
    const cache = shape("rect", { class: "cache", x: x + held, y: y + 30, width: 0, height: 8 });
    const busy = shape("rect", { class: "busy", x, y: y + 43, width: 0, height: 5, rx: 2 });
    const memory = shape("text", { x, y: y + 66 });
    node.append(shape("title", {}, `room for ${size(part.cache_bytes)} of cache`));
    root.append(node, shape("text", { class: "title", x, y: y + 20 }, part.node),
      shape("text", { x: x + 9 * part.node.length + 6, y: y + 20 }, layers), load,
      shape("rect", { class: "room", x, y: y + 30, width: room, height: 8, rx: 2 }),
      shape("rect", { class: "weights", x, y: y + 30, width: held, height: 8, rx: 2 }), cache,
      shape("rect", { class: "room", x, y: y + 43, width: inside, height: 5, rx: 2 }), busy, memory);
    return { part, node, load, cache, busy, memory, inside, largest, y };
  });
  if (chain && parts.length > 1) {
    root.append(shape("path", { class: "way back", d: `M${LEFT} ${top(parts.length - 1) + HIGH / 2}H12V${top(0) + HIGH / 2}H${LEFT}` }));
  }
  shelf.lost.forEach((one, place) => root.append(...lostNode(one, below + 8 + place * (LOST + 8))));
  root.append(shape("circle", { class: "token", r: 6, visibility: "hidden" }));
  const many = `${shelf.placement} on ${parts.length} ${parts.length === 1 ? "node" : "nodes"}`, lost = shelf.lost.length ? `; ${shelf.lost.length} lost` : "";
  const unused = shelf.unused.length ? `; no part: ${shelf.unused.slice(0, MOST_UNUSED).join(", ")}${shelf.unused.length > MOST_UNUSED ? ", …" : ""}` : "";
  $("shelf-words").textContent = `${many}, ${shelf.backend === "sim" ? "simulated at the predicted pace" : "real"}${lost}${unused}`;
  $("device").hidden = !shelf.predicted_for.length;
  $("device").textContent = `Predictions are for ${shelf.predicted_for.join(", ")}; ${shelf.backend === "sim" ? "in this simulation, the server's machine computes" : "but these nodes are processes of the server's machine"}.`;
  showLoad(shelf.load);
}
function lostNode({ node, why }, y) {
  const box = shape("rect", { class: "node lost", x: LEFT, y, width: WIDE - LEFT - 2, height: LOST - 4, rx: 10 }), x = LEFT + 12;
  box.append(shape("title", {}, why || "not in the group"));
  const short = why.length > MOST_WHY ? `${why.slice(0, MOST_WHY - 1)}…` : why;
  return [box, shape("text", { class: "title", x, y: y + 18 }, node),
    shape("text", { class: "lost", x: WIDE - 14, y: y + 18, "text-anchor": "end" }, "lost"), shape("text", { class: "why", x, y: y + 34 }, short)];
}
const busyOf = (load, name) => (load.nodes.find((node) => node.name === name) || { busy_s: 0 }).busy_s;

export function showLoad(load) {
  if (loads.length && loads[0].engine !== load.engine) loads = []; // a new engine counts from 0
  loads.push(load);
  while (loads.length > 2 && loads[1].at_s < load.at_s - SPAN_S) loads.shift();
  const first = loads[0], before = loads[loads.length - 2] || load, span_s = load.at_s - first.at_s;
  const spent = drawn.map((one) => busyOf(load, one.part.node) - busyOf(before, one.part.node));
  drawn.forEach((one, place) => {
    const part = one.part, used = load.cache_share * part.cache_bytes;
    const share = span_s > 0 ? Math.min(1, (busyOf(load, part.node) - busyOf(first, part.node)) / span_s) : 0;
    one.cache.setAttribute("width", used / one.largest * one.inside);
    one.busy.setAttribute("width", share * one.inside);
    one.load.textContent = share > 0.005 ? `${percent(100 * share)} busy` : "idle";
    one.memory.textContent = `${size(part.weights_bytes)} weights, ${size(used)} cache`;
    one.node.classList.toggle("lit", spent[place] > 0);
  });
  const values = { running: String(load.running), waiting: String(load.waiting), cache: percent(100 * load.cache_share), prefilled: load.prefilled.toLocaleString("en") };
  $("loads").replaceChildren(...CARDS.map(([name, words]) => {
    const made = element("div");
    made.append(element("dt", "", name), element("dd", "", values[name]), element("dd", "what", words));
    return made;
  }));
  $("lag").hidden = !(load.lag_s > 0.5);
  $("lag").textContent = `This machine computes slower than the simulated cluster would: ${seconds(load.lag_s)} late. What is measured is too slow by that.`;
  if (spent.some((one) => one > 0)) fly(spent, (load.at_s - before.at_s) * 1000);
}
/** Shows all nodes as idle after a while without a message. */
export function quiet() {
  if (!loads.length || !loads[loads.length - 1].nodes.length) return;
  const last = loads[loads.length - 1];
  loads = [{ ...last, running: 0 }];
  if (last.running === 0) drawn.forEach((one) => { one.node.classList.remove("lit"); one.busy.setAttribute("width", 0); one.load.textContent = "idle"; });
}
/** Moves the token through the nodes that worked on it, for each node's share of the time, and back. */
function fly(spent, took_ms) {
  const token = $("shelf").querySelector(".token"), reduced = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const stops = drawn.map((one, place) => [one.y + HIGH / 2, spent[place]]).filter(([, share]) => share > 0);
  if (shelf.placement !== "pipeline" || reduced || stops.length < 2) { token.setAttribute("visibility", "hidden"); return; }
  const whole = stops.reduce((sum, [, share]) => sum + share, 0), ms = Math.min(MOST_MS, Math.max(120, took_ms)), start = performance.now();
  const mine = ++flight;
  const turn = (now) => {
    if (mine !== flight) return;
    const at = (now - start) / ms;
    if (at >= 1) { token.setAttribute("visibility", "hidden"); return; }
    token.setAttribute("visibility", "visible");
    let gone = at * 1.2 * whole, place = 0; // in the last sixth, the token's id returns to the first node
    while (place < stops.length && gone > stops[place][1]) { gone -= stops[place][1]; place += 1; }
    if (place >= stops.length) {
      const back = Math.min(1, gone / (0.2 * whole)), low = stops[stops.length - 1][0], high = stops[0][0];
      token.setAttribute("cx", 12);
      token.setAttribute("cy", low + (high - low) * back);
    } else {
      const share = gone / stops[place][1], y = stops[place][0] - HIGH / 2, from = place ? y - GAP : y;
      token.setAttribute("cx", LANE);
      token.setAttribute("cy", from + (y + HIGH - from) * share);
    }
    requestAnimationFrame(turn);
  };
  requestAnimationFrame(turn);
}
export function showMeasured(timings) {
  const predicted = timings.predicted || {};
  table("measured", [["last answer", true], ["predicted", false], ["measured", false]], [
    [["first token", seconds(predicted.ttft_s), seconds(timings.ttft_s)], ""],
    [["tokens/s", number(predicted.tokens_per_s, 3), number(timings.tokens_per_s, 3)], ""],
  ]);
}
