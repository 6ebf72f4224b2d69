// Uses up the code of a login link, which is in the fragment of the address: no browser sends that by itself.
export async function login(code) {
  const answer = await fetch("/login", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ code }) });
  history.replaceState(null, "", "#/");
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).detail || `the answer is ${answer.status}`);
}
