// One run, or a sweep that was started here: in progress, its state every second; finished, its curves; and its logs either way.
import { $, element } from "./dom.js";
import { drawCharts, drawRun, liveView } from "./live.js";
import { drawCompared } from "./compare.js";
import { address, ask, heading, link, query, repeat } from "./ui.js";

const NOTHING = "nothing yet";

export function showRun(root, id) {
  let shape = "", last = null, chosen = "", version = 0;
  const pill = element("span", "pill"), about = element("span"), reports = element("span", "reports"), stop = element("button", "plain", "Stop");
  const problem = element("div", "failure"), live = element("div"), curves = element("div"), logs = element("section");
  const picker = element("select"), text = element("pre", "log");
  problem.setAttribute("role", "alert");
  problem.hidden = logs.hidden = stop.hidden = true;
  stop.type = "button";
  stop.addEventListener("click", async () => {
    stop.disabled = true;
    await ask("/api/stop", { id }).catch((error) => { stop.disabled = false; problem.hidden = false; problem.textContent = error.message; });
  });
  const label = element("label", "filter", "log ");
  label.append(picker);
  picker.addEventListener("change", () => { chosen = picker.value; log(); });
  text.tabIndex = 0;
  text.setAttribute("aria-label", "the end of the log");
  logs.append(element("h2", "", "Output and logs"), label, text);
  root.append(heading(id, pill, about, reports, stop), problem, live, curves, logs);

  async function log() {
    const mine = last && last.child;
    const found = chosen === "the command" ? mine.lines.join("\n") : (await ask(`/api/log?${query({ id, name: chosen })}`)).text;
    if (text.textContent === (found || NOTHING)) return;
    const atEnd = text.scrollTop + text.clientHeight >= text.scrollHeight - 8;
    text.textContent = found || NOTHING;
    if (atEnd) text.scrollTop = text.scrollHeight;
  }
  function offerLogs(found) {
    const names = [...(found.child ? ["the command"] : []), ...found.logs];
    logs.hidden = !names.length;
    if (names.join("\n") !== [...picker.options].map((one) => one.value).join("\n")) {
      picker.replaceChildren(...names.map((name) => new Option(name)));
      if (!names.includes(chosen)) chosen = names[0] || "";
      picker.value = chosen;
    }
  }
  function failure(found) {
    const code = found.child && found.child.code, words = found.row && found.row.error;
    problem.hidden = !(words || code);
    const told = found.child && code ? found.child.lines.filter((line) => /^(error|warning|seed)/.test(line)) : [];
    problem.textContent = words || (code ? `simcluster ended with exit code ${code}:\n${(told.length ? told : found.child.lines).join("\n")}` : "");
  }
  const resized = () => { if (last && last.live && $("charts")) drawCharts(last.live.history); };
  window.addEventListener("resize", resized);
  const end = repeat(async () => {
    const found = await ask(`/api/run?${query({ id })}`);
    const running = Boolean(found.child && found.child.code === null);
    const code = found.child ? found.child.code : 0;
    const isSweep = Boolean(found.row && found.row.kind === "sweep");
    const state = isSweep && running ? "running" : found.row ? found.row.state : running ? "starting" : code === 130 ? "stopped" : code ? "failed" : "writing its results";
    last = found;
    pill.textContent = state;
    pill.className = `pill ${state.replaceAll(" ", "-")}`;
    const run = found.live ? found.live.run : found.row;
    about.textContent = isSweep ? `sweep, ${found.row.points} points${running ? " so far" : ""}` : run && run.algorithm ? `${run.algorithm} on ${run.topology}, ${run.backend}, seed ${run.seed}` : "";
    stop.hidden = !running;
    reports.replaceChildren(...(isSweep ? [link("Open its points", `#/sweep/${address(id)}`)] : []), ...(found.row ? found.row.pages : []).map((page) => link(`Open ${page.replace(".html", "")}`, `/files/${address(id)}/${page}`)));
    failure(found);
    const now = found.live ? "live" : found.row && ["done", "failed"].includes(found.row.state) ? `done ${found.row.changed_s}` : "";
    if (found.live) {
      if (shape !== "live") { liveView(live); curves.replaceChildren(); }
      drawRun(found.live.run, found.live.history);
    } else if (now && now !== shape) {
      live.replaceChildren();
      version += 1;
      if (!isSweep) drawCompared(curves, [id], "time").catch((error) => { curves.replaceChildren(element("p", "note", error.message)); });
    }
    if (now) shape = now;
    offerLogs(found);
    if (chosen) await log();
    return running || Boolean(found.live) || !(now || code);
  });
  return () => { end(); window.removeEventListener("resize", resized); };
}
