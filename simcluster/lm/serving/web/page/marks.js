// The probabilities of an answer's tokens, which a pointer over the text shows. They stay in this page.
import { element } from "./dom.js";

const marks = new WeakMap(); // turn -> [text, title] of each token

const chance = (logprob) => `${(100 * Math.exp(logprob)).toFixed(1)} %`;
const title = (own, others) => [chance(own), ...others.map(([text, logprob]) => `${JSON.stringify(text)} ${chance(logprob)}`)].join("\n");

/** Stores the tokens of a part of *turn*; a character of several tokens belongs to the last of them. */
export function mark(turn, logprobs, decoder) {
  if (!logprobs) return;
  const rows = logprobs.content
    ? logprobs.content.map((one) => [decoder.decode(new Uint8Array(one.bytes), { stream: true }), title(one.logprob, one.top_logprobs.map((other) => [other.token, other.logprob]))])
    : logprobs.tokens.map((text, place) => [text, title(logprobs.token_logprobs[place], Object.entries(logprobs.top_logprobs[place]))]);
  marks.set(turn, [...(marks.get(turn) || []), ...rows]);
}
/** Returns the elements of the tokens of *turn*, or null if it has no probabilities. */
export function marked(turn) {
  const rows = marks.get(turn);
  return rows ? rows.map(([text, words]) => Object.assign(element("span", "token", text), { title: words })) : null;
}
