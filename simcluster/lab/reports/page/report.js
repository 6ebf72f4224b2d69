import { canBeLog, curveControls, saveButtons, smoothedTraces, withScale } from "./figures.js";
import { explainEmpty, startPlotly } from "./inflate.js";
// Draw the report's figures from the JSON in the page, in the colours of the reader's scheme.
"use strict";
const figures = JSON.parse(document.getElementById("figures").textContent);
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const touch = window.matchMedia("(pointer: coarse)").matches;

function draw(place) {
  const figure = figures[place.dataset.figure];
  const style = getComputedStyle(document.documentElement);
  const layout = structuredClone(figure.layout);
  layout.font = { ...layout.font, color: style.getPropertyValue("--ink").trim() };
  layout.hoverlabel = {
    bgcolor: style.getPropertyValue("--card").trim(),
    bordercolor: style.getPropertyValue("--line").trim(),
    font: { color: style.getPropertyValue("--ink").trim() },
  };
  const hidden = place.closest("section")?.querySelector(".line-names")?.hiddenNames;
  const shown = hidden?.size ? figure.data.map((trace) => (hidden.has(nameOf(trace)) ? { ...trace, visible: false } : trace)) : figure.data;
  const curves = place.closest("section")?.querySelector(".curves")?.chosen;
  const data = smoothedTraces(shown, curves?.weight);
  if (typeof curves?.log === "boolean" && isLoss(place)) {
    layout.yaxis = withScale(layout.yaxis, curves.log && canBeLog(figure.data));
  }
  // A finger that scrolls the page must not zoom a figure instead.
  if (touch) layout.dragmode = false;
  Plotly.react(place, data, layout, { responsive: true, displayModeBar: false });
  const titles = ["yaxis", "xaxis"].map((axis) => layout[axis]?.title?.text?.replace(/<.*/s, "")).filter(Boolean);
  const heading = place.closest("section")?.querySelector("h2")?.textContent || document.title;
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", [heading, titles.join(" against ")].filter(Boolean).join(": "));
}

const everyPlace = () => document.querySelectorAll("[data-figure]");
const isLoss = (place) => place.dataset.figure.includes("loss");
const nameOf = (trace) => trace.legendgroup ?? trace.name;

/** Return a short stroke in the style of the line. */
function sample(line) {
  const space = "http://www.w3.org/2000/svg";
  const made = document.createElementNS(space, "svg"), stroke = document.createElementNS(space, "path");
  made.setAttribute("viewBox", "0 0 28 8");
  made.setAttribute("aria-hidden", "true");
  for (const [name, value] of Object.entries({ d: "M0 4H28", stroke: line.color, "stroke-width": 3 })) stroke.setAttribute(name, value);
  const dashes = { dash: "8 4", dot: "3 3", dashdot: "8 3 3 3" }[line.dash];
  if (dashes) stroke.setAttribute("stroke-dasharray", dashes);
  made.append(stroke);
  return made;
}
/** The names of the lines in a section's figures, once for all of them; a press shows or hides a line. */
function nameLines(key) {
  const places = [...key.closest("section").querySelectorAll("[data-figure]")];
  const traces = places.flatMap((place) => figures[place.dataset.figure].data).filter((trace) => trace.line && trace.name && trace.showlegend !== false);
  const first = new Map(traces.map((trace) => [nameOf(trace), trace]).reverse());
  const names = [...new Set(traces.map(nameOf))];
  key.hiddenNames ??= new Set();
  key.hidden = names.length < 2;
  key.replaceChildren(...names.map((name) => {
    const button = document.createElement("button");
    const text = new DOMParser().parseFromString(first.get(name).name, "text/html").body.textContent; // escaped for plotly
    button.type = "button";
    button.setAttribute("aria-pressed", String(!key.hiddenNames.has(name)));
    button.append(sample(first.get(name).line), text);
    button.addEventListener("click", () => {
      if (!key.hiddenNames.delete(name)) key.hiddenNames.add(name);
      button.setAttribute("aria-pressed", String(!key.hiddenNames.has(name)));
      places.forEach(draw);
    });
    return button;
  }));
}

function start() {
  for (const place of everyPlace()) draw(place);
  document.querySelectorAll(".line-names").forEach(nameLines);
  for (const place of everyPlace()) {
    saveButtons(place, () => `${document.title}-${place.dataset.figure}`.replace(/[^\w.-]+/g, "-"), () => figures[place.dataset.figure].data);
  }
  for (const root of document.querySelectorAll(".curves")) {
    const places = [...root.closest("section").querySelectorAll("[data-figure]")], losses = places.filter(isLoss);
    const [controls, log] = curveControls((chosen) => { root.chosen = { ...chosen }; places.forEach(draw); });
    log.checked = losses.some((place) => figures[place.dataset.figure].layout.yaxis?.type === "log");
    log.closest("label").hidden = !losses.some((place) => canBeLog(figures[place.dataset.figure].data));
    root.append(controls);
  }
  dark.addEventListener("change", () => everyPlace().forEach(draw));

  for (const button of document.querySelectorAll(".choice[data-for] button")) {
    button.addEventListener("click", () => {
      for (const other of button.parentElement.children) other.setAttribute("aria-pressed", String(other === button));
      for (const place of document.querySelectorAll(`[data-switch="${button.parentElement.dataset.for}"]`)) {
        place.dataset.figure = `${place.dataset.stem}-${button.dataset.value}`;
        draw(place);
        place.closest("section").querySelectorAll(".line-names").forEach(nameLines);
      }
    });
  }
  document.documentElement.dataset.drawn = String(document.querySelectorAll("[data-figure] .main-svg").length > 0);
}
if (document.getElementById("plotly")) startPlotly().then(start, (error) => { explainEmpty(everyPlace(), error); document.documentElement.dataset.drawn = "false"; });
