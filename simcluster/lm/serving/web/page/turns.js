// The turns of a conversation: the text, and the buttons and numbers below it.
import { $, element, number, seconds } from "./dom.js";
import { markdown } from "./markdown.js";
import { marked } from "./marks.js";

const button = (text, name) => {
  const made = element("button", "plain", text);
  made.type = "button";
  made.dataset.does = name;
  return made;
};
export function words(timings) {
  // the numbers below an answer, with predicted ones in brackets
  const predicted = timings.predicted, one = timings.completion_tokens === 1;
  const rate = timings.tokens_per_s === null ? [] : [`${number(timings.tokens_per_s, 3)} tokens/s${predicted ? ` (predicted ${number(predicted.tokens_per_s, 3)})` : ""}`];
  return [...rate, `first token after ${seconds(timings.ttft_s)}${predicted ? ` (predicted ${seconds(predicted.ttft_s)})` : ""}`, `${timings.completion_tokens} ${one ? "token" : "tokens"}`].join(" · ");
}
/** Returns the element of a turn; *place* is its index in the conversation. */
export function turnOf(turn, place, isLast) {
  const made = element("li", turn.role), said = element("div", "said");
  made.dataset.place = place;
  if (turn.role === "user") said.textContent = turn.text;
  else said.append(...(marked(turn) || markdown(turn.text)));
  made.append(said);
  if (turn.error) made.append(element("p", "failure", turn.error));
  if (turn.role === "user") return made;
  const under = element("div", "under");
  if (turn.text) under.append(button("Copy", "copy"));
  if (isLast) under.append(button(turn.error ? "Try again" : "Regenerate", "again"));
  const numbers = turn.timings ? words(turn.timings) : turn.stopped ? "stopped" : "";
  under.append(element("span", "numbers", numbers));
  made.append(under);
  return made;
}
export function drawTurns(turns) {
  $("turns").replaceChildren(...turns.map((turn, place) => turnOf(turn, place, place === turns.length - 1)));
  $("turns").scrollTop = $("turns").scrollHeight;
}
/** Draws the last turn while it is written, at most once per frame. */
export function writer(turn) {
  const made = element("li", "assistant writing"), said = element("div", "said"), under = element("div", "under"), numbers = element("span", "numbers", "waiting for the first token");
  under.append(numbers);
  made.append(said, under);
  $("turns").append(made);
  const box = $("turns");
  box.scrollTop = box.scrollHeight;
  let due = false, pieces = 0, first = 0;
  return () => {
    pieces += 1;
    first = first || performance.now();
    if (due) return;
    due = true;
    requestAnimationFrame(() => {
      due = false;
      const follows = box.scrollHeight - box.scrollTop - box.clientHeight < 80, since_s = (performance.now() - first) / 1000;
      said.replaceChildren(...(marked(turn) || markdown(turn.text)));
      numbers.textContent = since_s > 0.5 ? `${number((pieces - 1) / since_s, 2)} tokens/s` : "";
      if (follows) box.scrollTop = box.scrollHeight;
    });
  };
}
