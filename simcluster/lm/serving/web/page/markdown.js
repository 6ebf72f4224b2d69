// A model's markdown as elements. All text goes in as text, never as markup; links lead to http(s) only.
import { element } from "./dom.js";

const INLINE = /(`[^`\n]{1,2000}`)|\*\*([^*\n]{1,2000})\*\*|\*([^*\s][^*\n]{0,2000})\*|\[([^\]\n]{1,300})\]\((https?:\/\/[^\s)]{1,2000})\)|(https?:\/\/[^\s<>"')\]]{1,2000})/g;
const ITEM = /^( {0,12})(?:[-*+]|(\d{1,9})[.)]) (.*)$/;

function link(text, address) {
  const made = element("a", "", text);
  made.href = address;
  made.rel = "noopener noreferrer";
  made.target = "_blank";
  return made;
}
function inline(text) {
  const found = [];
  let from = 0;
  for (const part of text.matchAll(INLINE)) {
    found.push(text.slice(from, part.index));
    from = part.index + part[0].length;
    const [, code, strong, soft, words, address, bare] = part;
    if (code) found.push(element("code", "", code.slice(1, -1)));
    else if (strong) { const made = element("strong"); made.append(...inline(strong)); found.push(made); }
    else if (soft) { const made = element("em"); made.append(...inline(soft)); found.push(made); }
    else found.push(words ? link(words, address) : link(bare, bare));
  }
  return [...found, text.slice(from)];
}
function spread(lines) {
  // a paragraph keeps its line breaks
  return lines.flatMap((line, place) => (place ? [element("br"), ...inline(line)] : inline(line)));
}
function codeBlock(lines) {
  const made = element("div", "block"), pre = element("pre"), button = element("button", "plain", "Copy");
  pre.append(element("code", "", lines.join("\n")));
  pre.tabIndex = 0;
  button.type = "button";
  button.dataset.copies = "code";
  made.append(pre, button);
  return made;
}
function list(lines, from) {
  // the list that begins at a line, with those inside it; and the line after it
  const [, indent, number] = lines[from].match(ITEM), made = element(number ? "ol" : "ul");
  if (number) made.start = Number(number);
  let at = from;
  while (at < lines.length) {
    const found = lines[at].match(ITEM), last = made.lastElementChild;
    if (found && found[1].length === indent.length && Boolean(found[2]) === Boolean(number)) {
      const item = element("li");
      item.append(...inline(found[3]));
      made.append(item);
      at += 1;
    } else if (found && found[1].length > indent.length && last) {
      const [inner, after] = list(lines, at);
      last.append(inner);
      at = after;
    } else if (!found && lines[at].startsWith(" ") && lines[at].trim() && last) {
      last.append(element("br"), ...inline(lines[at].trim()));
      at += 1;
    } else if (!lines[at].trim() && ITEM.test(lines[at + 1] || "")) at += 1;
    else break;
  }
  return [made, at];
}
/** Returns the elements of a text. A code block without an end, as in a stream, goes to the end of the text. */
export function markdown(text) {
  const lines = text.split("\n"), made = [];
  for (let at = 0; at < lines.length;) {
    const line = lines[at], heading = line.match(/^(#{1,6}) (.*)$/);
    if (line.trimStart().startsWith("```")) {
      let end = at + 1;
      while (end < lines.length && !lines[end].trimStart().startsWith("```")) end += 1;
      made.push(codeBlock(lines.slice(at + 1, end)));
      at = end + 1;
    } else if (heading) {
      const title = element(heading[1].length < 3 ? "h3" : "h4");
      title.append(...inline(heading[2]));
      made.push(title);
      at += 1;
    } else if (ITEM.test(line)) {
      const [found, after] = list(lines, at);
      made.push(found);
      at = after;
    } else if (/^(-{3,}|\*{3,}|_{3,})\s*$/.test(line)) { made.push(element("hr")); at += 1; }
    else if (line.startsWith(">")) {
      let end = at;
      while (end < lines.length && lines[end].startsWith(">")) end += 1;
      const quote = element("blockquote");
      quote.append(...spread(lines.slice(at, end).map((one) => one.replace(/^> ?/, ""))));
      made.push(quote);
      at = end;
    } else if (!line.trim()) at += 1;
    else {
      let end = at + 1;
      while (end < lines.length && lines[end].trim() && !ITEM.test(lines[end]) && !/^(#{1,6} |>|\s*```)/.test(lines[end])) end += 1;
      const paragraph = element("p");
      paragraph.append(...spread(lines.slice(at, end)));
      made.push(paragraph);
      at = end;
    }
  }
  return made;
}
