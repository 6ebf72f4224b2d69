// Content that a page holds compressed: gzip, written in base64 in an element that runs nothing.

/** The bytes in the element *id*. */
export async function inflated(id) {
  const letters = atob(document.getElementById(id).textContent), packed = new Uint8Array(letters.length);
  for (let at = 0; at < packed.length; at++) packed[at] = letters.charCodeAt(at);
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}

/** Run plotly.js from the element "plotly": the page's policy allows that script alone, by its hash. */
export async function startPlotly() {
  const script = document.createElement("script");
  script.textContent = new TextDecoder().decode(await inflated("plotly"));
  document.head.append(script);
  if (!window.Plotly) throw new Error("plotly.js did not start");
}

/** Say in *places* why they stay empty. */
export function explainEmpty(places, error) {
  const old = typeof DecompressionStream === "undefined";
  const words = old ? "This figure needs a newer browser: Chrome or Edge 80, Firefox 113, Safari 16.4, or later."
    : `This figure could not be drawn (${error.message}).`;
  for (const place of places) {
    place.textContent = `${words} The tables and the files next to this page have its numbers.`;
    place.classList.add("note");
  }
}
