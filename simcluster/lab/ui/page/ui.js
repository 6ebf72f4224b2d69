// The page: the address after # chooses a view, which draws the content and may refresh it every second.
import { $, element } from "./dom.js";
import { login } from "./login.js";
import { showList } from "./list.js";
import { showRun } from "./run.js";
import { showCompare } from "./compare.js";
import { showNew } from "./new.js";

const POLL_MS = 1000, HIDDEN_MS = 10000;
let leave = () => {};

export async function ask(path, content) {
  // Return the answer of this service; throw an error with all problems.
  const how = content === undefined ? {} : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(content) };
  let answer;
  try {
    answer = await fetch(path, { cache: "no-store", ...how });
  } catch {
    throw new Error("simcluster ui does not answer; asked again soon. What is shown was true before.");
  }
  if (answer.status === 204) return null;
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) throw Object.assign(new Error((found.problems || [found.detail || `the answer is ${answer.status}`]).join("\n")), { problems: found.problems, status: answer.status });
  return found;
}
export const query = (values) => new URLSearchParams(values).toString();
export const address = (id) => id.split("/").map(encodeURIComponent).join("/");
export function trouble(text) {
  $("trouble").textContent = text;
  $("trouble").hidden = !text;
}
export function heading(text, ...more) {
  const title = element("div", "title");
  title.append(element("h1", "", text), ...more);
  document.title = `${text} · simcluster`;
  return title;
}
export function link(text, to, classes) {
  const made = element("a", classes, text);
  made.href = to;
  return made;
}
export function repeat(draw) {
  // Call draw now, and every second until the reader leaves this view.
  let timer = 0, left = false;
  const turn = async () => {
    let goesOn = true;
    try {
      goesOn = (await draw()) !== false;
      if (!left) trouble("");
    } catch (error) {
      if (!left) trouble(error.message);
    }
    if (!left && goesOn) timer = setTimeout(turn, document.hidden ? HIDDEN_MS : POLL_MS);
  };
  turn();
  return () => { left = true; clearTimeout(timer); };
}

function route() {
  const [path, rest] = location.hash.slice(1).split("?");
  const [, view, ...parts] = path.split("/");
  const id = parts.map(decodeURIComponent).join("/"), root = element("div");
  leave();
  leave = () => {};
  trouble("");
  if (view === "login") { login(id).then(route, (error) => trouble(error.message)); return; }
  $("view").replaceChildren(root);
  for (const entry of document.querySelectorAll("nav a:not(.home)")) {
    const here = entry.getAttribute("href") === (view === "new" ? "#/new" : "#/");
    if (here) entry.setAttribute("aria-current", "page"); else entry.removeAttribute("aria-current");
  }
  const options = new URLSearchParams(rest);
  leave = (view === "run" ? showRun(root, id) : view === "compare" ? showCompare(root, options) : view === "new" ? showNew(root, options) : showList(root, view === "sweep" ? id : "")) || leave;
}
window.addEventListener("hashchange", () => { route(); $("view").focus({ preventScroll: true }); window.scrollTo(0, 0); });
route();
