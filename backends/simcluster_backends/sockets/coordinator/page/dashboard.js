// Shows what a coordinator knows of its run. Off loopback it needs a session, which a login link begins.
import { $, element, seconds, table } from "./dom.js";
import { drawCharts, drawRun, liveView } from "./live.js";
import { login } from "./login.js";

const POLL_MS = 1000, HIDDEN_MS = 10000, MOST_POINTS = 1200;
let epoch = null, history_ = [], timer = 0, latest = null;

function show(status) {
  const run = status.run;
  $("board").hidden = false;
  table("workers", [["worker", true], ["rank", false], ["state", true], ["address", true], ["silent", false]],
    status.workers.map((worker) => [[worker.name, worker.rank === null ? "–" : String(worker.rank), worker.state, worker.address || "–", seconds(worker.silent_s)], worker.state === "lost" ? "lost" : ""]));
  $("foot").textContent = `simcluster ${status.version}; epoch ${status.epoch}; a worker is lost after ${seconds(status.dead_s)} of silence`;
  $("run").hidden = !run;
  if (!run) { $("state").textContent = "no run yet"; return; }
  document.title = `${run.name}: ${run.state}, step ${run.step}`;
  $("name").textContent = run.name;
  $("state").textContent = run.state;
  $("state").className = `pill ${run.state}`;
  $("about").textContent = `${run.algorithm} on ${run.topology}, ${run.world_size} nodes, seed ${run.seed}${run.attempt > 1 ? `, attempt ${run.attempt}` : ""}`;
  if (run.error) trouble(run.error);
  const missing = run.nodes.filter((node) => node.state === "expected").map((node) => node.name);
  if (run.state === "gathering" && missing.length) {
    trouble(`Waiting for ${missing.join(", ")}. A node whose topology gives an address is started there: simcluster node NAME --coordinator ${location.host} --token-file FILE`);
  }
  $("report").hidden = !status.has_report;
  drawRun(run, history_);
}
async function showConfig() {
  const { config, folder } = await get("/config");
  $("experiment").textContent = config;
  $("config").hidden = !config;
  $("folder").textContent = folder && `Its launcher writes its results to ${folder}`;
  $("results").hidden = !folder;
}
function trouble(text) {
  $("trouble").textContent = text;
  $("trouble").hidden = !text;
}
async function get(path) {
  const answer = await fetch(path, { cache: "no-store" });
  if (answer.status === 401) throw new Error("refused");
  if (!answer.ok) throw new Error(`the coordinator says ${answer.status}`);
  return answer.json();
}
async function poll() {
  try {
    const status = await get("/status");
    if (status.epoch !== epoch || history_.length > MOST_POINTS) {
      if (status.epoch !== epoch) {
        liveView($("run"));
        await showConfig();
      }
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
      $("ask").hidden = false;
      $("board").hidden = true;
      return; // until a link is opened
    }
    trouble(`${error instanceof TypeError ? "The coordinator does not answer" : error.message}; asked again soon. What is below was true before.`);
  }
  clearTimeout(timer);
  timer = setTimeout(poll, document.hidden ? HIDDEN_MS : POLL_MS);
}
async function begin() {
  clearTimeout(timer);
  const [, code] = location.hash.match(/^#\/login\/(.+)$/) || [];
  if (code) await login(code).catch((error) => trouble(error.message));
  poll();
}
window.addEventListener("resize", () => { if (latest && latest.run) drawCharts(history_); });
window.addEventListener("hashchange", begin);
begin();
