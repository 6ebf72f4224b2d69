// The page: conversations, asking, stopping, and the shelf's state. Beyond loopback, the page needs a session, which a link starts.
import { $, element } from "./dom.js";
import { login } from "./login.js";
import { asked, events } from "./stream.js";
import { keep, kept } from "./store.js";
import { drawShelf, quiet, showLoad, showMeasured } from "./shelf.js";
import { mark } from "./marks.js";
import { drawTurns, writer } from "./turns.js";

const STARTERS = ["The capital of France is", "Explain a pipeline in two sentences.", "Write a haiku about a Raspberry Pi."];
const RETRY_MS = 2000, LIKELIEST = 5, NARROW = matchMedia("(max-width: 760px)");
let conversations = kept(), current = null, stopping = null, model = null, following = null, silence = 0, redrawing = false;

function newChat() {
  if (stopping) stopping.abort();
  current = { id: crypto.randomUUID ? crypto.randomUUID() : String(Math.random()), title: "", turns: [] };
  show();
  $("text").focus();
}
function show() {
  const rows = conversations.map((one) => {
    const row = element("li"), open = element("button", "open", one.title || "untitled"), forget = element("button", "forget", "✕");
    open.type = forget.type = "button";
    forget.setAttribute("aria-label", `forget ${one.title}`);
    if (one === current) row.setAttribute("aria-current", "true");
    open.addEventListener("click", () => {
      if (stopping) stopping.abort();
      current = one;
      if (NARROW.matches) $("history-side").open = false;
      show();
    });
    forget.addEventListener("click", () => {
      conversations = keep(conversations.filter((other) => other !== one));
      if (one === current) newChat(); else show();
    });
    row.append(open, forget);
    return row;
  });
  $("conversations").replaceChildren(...rows);
  drawTurns(current.turns);
}
function remember() {
  const first = current.turns.find((turn) => turn.role === "user");
  current.title = first ? first.text.slice(0, 60) : "";
  conversations = keep([current, ...conversations.filter((one) => one !== current)]);
}
function sampling() {
  const value = (id) => ($(id).value.trim() === "" ? undefined : Number($(id).value));
  const found = { temperature: value("temperature"), top_p: value("top_p"), top_k: value("top_k"), max_tokens: value("max_tokens"), seed: value("seed") };
  return Object.fromEntries(Object.entries(found).filter(([, one]) => one !== undefined));
}
function question(turns) {
  const likeliest = !$("likeliest").checked ? {} : model.chat ? { logprobs: true, top_logprobs: LIKELIEST } : { logprobs: LIKELIEST };
  const common = { model: $("model").value, stream: true, ...sampling(), ...likeliest }, system = $("system").value.trim();
  if (!model.chat) return ["/v1/completions", { ...common, prompt: turns[turns.length - 1].text }];
  const messages = turns.filter((turn) => turn.role === "user" || turn.text).map((turn) => ({ role: turn.role, content: turn.text }));
  return ["/v1/chat/completions", { ...common, messages: [...(system ? [{ role: "system", content: system }] : []), ...messages] }];
}
async function answer() {
  // request the next turn of the current conversation, and write it as it arrives
  const mine = current, turn = { role: "assistant", text: "" }, [path, body] = question(mine.turns);
  const abort = stopping = new AbortController();
  setBusy(true);
  const write = writer(turn), decoder = new TextDecoder();
  mine.turns.push(turn);
  try {
    for await (const event of events(await asked(path, body, abort.signal))) {
      if (event.name === "timings") turn.timings = event.data;
      if (event.name) continue;
      if (event.data.error) throw new Error(event.data.error.message);
      const choice = event.data.choices[0], text = choice ? (model.chat ? choice.delta.content : choice.text) : "";
      if (choice) mark(turn, choice.logprobs, decoder);
      if (text) { turn.text += text; if (mine === current) write(); }
    }
    if (turn.timings) showMeasured(turn.timings);
  } catch (error) {
    if (error.name === "AbortError") turn.stopped = true;
    else turn.error = error.message;
    if (error.status === 401) askForLogin();
  }
  if (stopping === abort) { stopping = null; setBusy(false); }
  if (mine === current) remember();
  else conversations = keep(conversations);
  show();
}
function setBusy(busy) {
  $("send").textContent = busy ? "Stop" : "Send";
  $("send").classList.toggle("stop", busy);
}
function say(text) {
  if (!text.trim() || stopping || !model) return;
  current.turns.push({ role: "user", text });
  $("text").value = "";
  fit();
  remember();
  show();
  answer();
}
function fit() {
  $("text").style.height = "auto";
  $("text").style.height = `${$("text").scrollHeight + 2}px`;
}
async function copy(text, from) {
  try {
    await navigator.clipboard.writeText(text);
    from.textContent = "Copied";
  } catch {
    from.textContent = "Not allowed";
  }
  setTimeout(() => { from.textContent = "Copy"; }, 1500);
}
function pressed(event) {
  const found = event.target.closest("button");
  if (!found) return;
  if (found.dataset.copies) copy(found.parentElement.querySelector("code").textContent, found);
  const place = found.closest("li").dataset.place;
  if (found.dataset.does === "copy") copy(current.turns[place].text, found);
  if (found.dataset.does === "again" && !stopping) {
    current.turns.splice(place);
    show();
    answer();
  }
}
function askForLogin() {
  $("ask-login").hidden = false;
  $("ask-login").textContent = "This page needs a login. Open the link that the server printed last on its terminal: it works once, within ten minutes. Loading this page after that prints another one.";
}
function follow() {
  // show the state of the engine as it arrives
  if (following) following.close();
  following = new EventSource("/live");
  following.onmessage = (event) => {
    const state = JSON.parse(event.data);
    if (state.engine !== model.load.engine) redraw();
    showLoad(state);
    clearTimeout(silence);
    silence = setTimeout(quiet, 1500);
  };
  following.onerror = () => { if (following.readyState === EventSource.CLOSED) setTimeout(load, RETRY_MS); };
}
async function redraw() {
  // another engine has begun: draw its shelf
  if (redrawing) return;
  redrawing = true;
  try {
    drawShelf(model = await (await asked("/shelf")).json());
  } catch { /* the next state tries again */ }
  redrawing = false;
}
function showModels(found) {
  const chosen = $("model").value, names = found.map((one) => one.id);
  $("model").replaceChildren(...names.map((name) => element("option", "", name)));
  if (names.includes(chosen)) $("model").value = chosen;
  $("model").disabled = names.length < 2;
  $("model").hidden = false;
}
async function load() {
  // show the models and the shelf; repeat until the model is loaded
  try {
    const found = await (await asked("/v1/models")).json();
    model = await (await asked("/shelf")).json();
    showModels(found.data);
  } catch (error) {
    if (error.status === 401) { askForLogin(); return; }
    $("about").textContent = error.message;
    setTimeout(load, RETRY_MS);
    return;
  }
  $("ask-login").hidden = true;
  $("about").textContent = `${model.backend === "sim" ? "simulated cluster, real tokens" : "real nodes"}, context of ${model.context.toLocaleString("en")} tokens`;
  $("greeting").textContent = `Ask ${$("model").value}`;
  $("hint").textContent = model.chat ? "Answers come from the nodes of the shelf, a token at a time." : "This model continues a text: it has no chat template.";
  drawShelf(model);
  if (model.why_not) { // the page shows what is known so far
    $("about").textContent = model.why_not;
    setTimeout(load, RETRY_MS);
  } else follow();
}
async function begin() {
  const [, code] = location.hash.match(/^#\/login\/(.+)$/) || [];
  if (code) await login(code).catch((error) => { $("about").textContent = error.message; });
  load();
}
$("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  if (stopping) stopping.abort(); else say($("text").value);
});
$("text").addEventListener("input", fit);
$("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); say($("text").value); }
});
$("turns").addEventListener("click", pressed);
$("model").addEventListener("change", () => { $("greeting").textContent = `Ask ${$("model").value}`; });
$("new").addEventListener("click", newChat);
$("starters").append(...STARTERS.map((text) => {
  const made = element("button", "plain", text);
  made.type = "button";
  made.addEventListener("click", () => say(text));
  return made;
}));
const arrange = () => { for (const id of ["history-side", "shelf-side"]) $(id).open = !NARROW.matches; };
NARROW.addEventListener("change", arrange);
window.addEventListener("hashchange", begin);
arrange();
newChat();
begin();
