// Conversations, kept in this browser, or only in this page if the browser cannot store them.
const KEY = "simcluster.conversations", MOST = 50, MOST_CHARACTERS = 2000000;

export function kept() {
  try {
    const found = JSON.parse(localStorage.getItem(KEY) || "[]");
    return Array.isArray(found) ? found.filter((one) => one && typeof one.id === "string" && Array.isArray(one.turns)) : [];
  } catch {
    return [];
  }
}
/** Keeps the newest conversations that fit; returns them. */
export function keep(conversations) {
  let rows = conversations.filter((one) => one.turns.length).slice(0, MOST);
  while (rows.length > 1 && JSON.stringify(rows).length > MOST_CHARACTERS) rows = rows.slice(0, -1);
  try {
    localStorage.setItem(KEY, JSON.stringify(rows));
  } catch { /* a private window, or no space: this page still has them */ }
  return rows;
}
