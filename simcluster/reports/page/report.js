// Draws the report's figures from the JSON beside it, in the colours of the reader's scheme.
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
  // A finger that scrolls the page must not zoom a figure instead.
  if (touch) layout.dragmode = false;
  Plotly.react(place, figure.data, layout, { responsive: true, displayModeBar: false });
  const titles = ["yaxis", "xaxis"].map((axis) => layout[axis]?.title?.text?.replace(/<.*/s, "")).filter(Boolean);
  const heading = place.closest("section")?.querySelector("h2")?.textContent || document.title;
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", [heading, titles.join(" against ")].filter(Boolean).join(": "));
}

for (const place of document.querySelectorAll("[data-figure]")) draw(place);
dark.addEventListener("change", () => document.querySelectorAll("[data-figure]").forEach(draw));

for (const button of document.querySelectorAll(".choice button")) {
  button.addEventListener("click", () => {
    for (const other of button.parentElement.children) other.setAttribute("aria-pressed", String(other === button));
    for (const place of document.querySelectorAll(`[data-switch="${button.parentElement.dataset.for}"]`)) {
      place.dataset.figure = `${place.dataset.stem}-${button.dataset.value}`;
      draw(place);
    }
  });
}
document.documentElement.dataset.drawn = String(document.querySelectorAll("[data-figure] .main-svg").length > 0);
