// Sends requests to the server, and reads the events of its answer.
const SILENT = "The server does not answer. It may be stopped, or the network is down.";

/** Returns an error with the server's message. */
async function refusal(answer) {
  const found = await answer.json().catch(() => ({}));
  const words = found.error ? found.error.message : found.detail || `the answer is ${answer.status}`;
  return Object.assign(new Error(words), { status: answer.status });
}
export async function asked(path, body, signal) {
  const how = body === undefined ? {} : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  let answer;
  try {
    answer = await fetch(path, { cache: "no-store", signal, ...how });
  } catch (error) {
    throw error.name === "AbortError" ? error : new Error(SILENT);
  }
  if (!answer.ok) throw await refusal(answer);
  return answer;
}
/** Yields {data} for each event and {name, data} for each comment with a name, until [DONE]. */
export async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  try {
    for (;;) {
      const { value, done } = await reader.read().catch((error) => { throw error.name === "AbortError" ? error : new Error("The connection broke in the middle of the answer."); });
      if (done) throw new Error("The connection broke in the middle of the answer.");
      held += value;
      const parts = held.split("\n\n");
      held = parts.pop();
      for (const part of parts) {
        if (part === "data: [DONE]") return;
        const named = part.match(/^: (\w+) (\{.*\})$/);
        if (part.startsWith("data: ")) yield { data: JSON.parse(part.slice(6)) };
        else if (named) yield { name: named[1], data: JSON.parse(named[2]) };
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
