// Helpers for drawings on a canvas: ticks of axes, texts that fit, a pen in the colours of the reader's scheme.

/** Return the beginning of *text* that fits into *px*. */
export function fitted(pen, text, px) {
  if (pen.measureText(text).width <= px) return text;
  let most = text.length;
  while (most > 1 && pen.measureText(`${text.slice(0, most)}…`).width > px) most--;
  return `${text.slice(0, most)}…`;
}

/** Return about *count* round numbers from *start* to *end*. */
export function ticksOf(start, end, count) {
  if (!(end > start)) return [start];
  const raw = (end - start) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((digit) => digit * power >= raw * (1 - 1e-12));
  const found = [];
  for (let at = Math.ceil(start / step - 1e-9); at * step <= end + step * 1e-9; at++) found.push(at * step);
  return found;
}

/** Return the powers of ten from *start* to *end*; if they are few, also 2 and 5 times each. */
export function logTicks(start, end) {
  const decades = Math.log10(end / start), digits = decades > 4 ? [1] : decades > 2 ? [1, 3] : decades > 0.7 ? [1, 2, 5] : null;
  if (!digits) return ticksOf(start, end, 5).filter((tick) => tick > 0);
  const every = Math.max(1, Math.ceil(decades / 8)), found = [];
  for (let power = Math.floor(Math.log10(start)); power <= Math.log10(end); power += 1) {
    if (power % every) continue;
    for (const digit of digits) if (digit * 10 ** power >= start * (1 - 1e-9) && digit * 10 ** power <= end * (1 + 1e-9)) found.push(digit * 10 ** power);
  }
  return found;
}

/** Return the text of a tick. */
export function tickText(value) {
  const size = Math.abs(value);
  if (size >= 1e6 || (size > 0 && size < 1e-3)) return value.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e");
  return String(Number(value.toPrecision(10)));
}

/** Clear *canvas*, of *width* by *height* CSS pixels, and return a pen for it; *colour* reads a colour of the page. */
export function penFor(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1, style = getComputedStyle(document.documentElement);
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.font = "12px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
  return { pen, ratio, colour: (name) => style.getPropertyValue(name).trim() };
}
