// Finished runs: curves over each other on a chosen axis, their numbers, the settings that differ.
import { element, table } from "./dom.js";
import { canBeLog, curveControls, saveButtons, smoothedTraces, withScale } from "./figures.js";
import { address, ask, heading, link, trouble } from "./ui.js";

const AXES = { time: "time", step: "steps", bytes: "bytes sent", energy: "energy" };
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const touch = window.matchMedia("(pointer: coarse)").matches;
let plotly = null;

function loaded() {
  // Load plotly.js (5 MB) only when it is needed.
  plotly ||= new Promise((done, failed) => {
    const script = element("script");
    script.src = "/static/plotly.js";
    script.onload = done;
    script.onerror = () => failed(new Error("plotly.js could not be loaded"));
    document.head.append(script);
  });
  return plotly;
}
function draw(place, figure, label, curves) {
  const style = getComputedStyle(document.documentElement), colour = (name) => style.getPropertyValue(name).trim();
  const layout = structuredClone(figure.layout);
  layout.font = { ...layout.font, color: colour("--ink") };
  layout.hoverlabel = { bgcolor: colour("--card"), bordercolor: colour("--line"), font: { color: colour("--ink") } };
  if (typeof curves.log === "boolean" && label.startsWith("loss")) layout.yaxis = withScale(layout.yaxis, curves.log && canBeLog(figure.data));
  if (touch) layout.dragmode = false; // A finger that scrolls must not zoom.
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", label);
  Plotly.react(place, smoothedTraces(figure.data, curves.weight), layout, { responsive: true, displayModeBar: false });
}
function switcher(axes, chosen, pick) {
  const made = element("div", "choice");
  made.setAttribute("role", "group");
  made.setAttribute("aria-label", "horizontal axis");
  for (const axis of axes) {
    const button = element("button", "", AXES[axis]);
    button.type = "button";
    button.dataset.value = axis;
    button.setAttribute("aria-pressed", String(axis === chosen));
    button.addEventListener("click", () => pick(axis));
    made.append(button);
  }
  return made;
}
export async function drawCompared(root, ids, x) {
  const [found] = await Promise.all([ask(`/api/compare?${new URLSearchParams([...ids.map((id) => ["id", id]), ["x", x]])}`), loaded()]);
  const focused = root.contains(document.activeElement);
  const curves = element("section"), top = element("div", "heading"), pair = element("div", "pair");
  const pick = (axis) => drawCompared(root, ids, axis).catch((error) => trouble(error.message));
  top.append(element("h2", "", "Convergence"), switcher(found.axes, x, pick));
  curves.append(top, pair);
  const panels = Object.entries(found.figures).map(([name, figure]) => [element("div", "figure"), figure, `${name} against ${AXES[x]}`]);
  pair.append(...panels.map(([place]) => place));
  let now = {};
  const all = () => panels.forEach((panel) => draw(...panel, now));
  if (panels.length) {
    const [controls, log] = curveControls((wanted) => { now = { ...wanted }; all(); });
    log.closest("label").hidden = !found.figures.loss || !canBeLog(found.figures.loss.data);
    pair.before(controls);
    panels.forEach(([place, figure, label]) => saveButtons(place, () => label.replaceAll(" ", "-"), () => figure.data));
  } else curves.append(element("p", "note", "No loss or accuracy was recorded."));
  const numbers = element("section"), cells = element("table"), wide = element("div", "wide");
  cells.setAttribute("aria-label", "numbers");
  wide.append(cells);
  numbers.append(element("h2", "", "Numbers"), wide);
  const names = ids.length > 1 ? ids : ["this run"];
  table(cells, [["", true], ...names.map((name) => [name, false])], found.numbers.map((row) => [row, ""]));
  const parts = [curves, numbers];
  if (ids.length > 1) {
    const settings = element("section"), differ = element("table"), room = element("div", "wide");
    differ.setAttribute("aria-label", "settings that differ");
    room.append(differ);
    settings.append(element("h2", "", "Settings that differ"), found.settings.length ? room : element("p", "note", "None: these runs have the same settings."));
    table(differ, [["setting", true], ...ids.map((name) => [name, true])], found.settings.map((row) => [row, ""]));
    parts.push(settings);
  }
  root.replaceChildren(...parts);
  if (focused) root.querySelector(`.choice [data-value="${x}"]`)?.focus();
  all();
  dark.onchange = all;
}
export function showCompare(root, options) {
  const ids = options.getAll("id"), place = element("div");
  const links = element("span", "reports");
  links.append(...ids.map((id) => link(id, `#/run/${address(id)}`)));
  root.append(heading(ids.length > 1 ? `${ids.length} runs compared` : "One run", links), place);
  if (!ids.length) { place.append(element("p", "note", "Tick runs in the list first.")); return; }
  drawCompared(place, ids, options.get("x") || "time").catch((error) => trouble(error.message));
}
