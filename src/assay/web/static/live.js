// Live pages: an element with [data-live] names a stream of events. After a change the page is
// fetched again, and the elements with the same ids are replaced.

const SHORTEST_MS = 1000;
const REOPEN_MS = 5000;
const watched = document.querySelector("[data-live]");

/** Return whether the page is up to date, as far as it can be. */
async function refresh() {
  const address = location.href;
  const answer = await fetch(address, { headers: { Accept: "text/html" } });
  // The run was deleted: its page shows that it does not exist.
  if (answer.status === 404) location.reload();
  if (!answer.ok) return true;
  const next = new DOMParser().parseFromString(await answer.text(), "text/html");
  // Another page, order or filter of the table has been chosen meanwhile.
  if (location.href !== address) return false;
  for (const id of ["figures", "runs", "samples"]) {
    const old = document.getElementById(id);
    const fresh = next.getElementById(id);
    if (!old || !fresh || old.contains(document.activeElement) && isTyping()) continue;
    keepState(old, fresh);
    old.replaceWith(fresh);
  }
  document.dispatchEvent(new CustomEvent("assay:changed"));
  return true;
}

function isTyping() {
  return ["INPUT", "SELECT", "TEXTAREA"].includes(document.activeElement.tagName) && document.activeElement.type !== "checkbox";
}

function keepState(old, fresh) {
  for (const box of old.querySelectorAll("input[type=checkbox]:checked")) {
    const same = fresh.querySelector(`input[value="${CSS.escape(box.value)}"]`);
    if (same) same.checked = true;
  }
  const current = old.querySelector("[aria-selected=true]");
  if (!current) return;
  const name = current.dataset.id ? "id" : "key";
  const same = [...fresh.querySelectorAll(`[data-${name}]`)].find((each) => each.dataset[name] === current.dataset[name]);
  if (!same) return;
  same.setAttribute("aria-selected", "true");
  if (current.contains(document.activeElement)) setTimeout(() => same.querySelector("[data-open]")?.focus({ preventScroll: true }));
}

function watch(address) {
  let stream = null;
  let waiting = null;
  let earliest = 0;
  let busy = false;
  let ended = false;

  async function run() {
    waiting = null;
    if (busy) return schedule();
    busy = true;
    const started = performance.now();
    let isFresh = true;
    try {
      isFresh = await refresh();
    } catch {
      // The server may be gone; the stream reconnects when it is back.
    }
    const now = performance.now();
    // A page that takes long to build is asked for less often.
    earliest = now + SHORTEST_MS + 4 * (now - started);
    busy = false;
    if (!isFresh) schedule();
  }

  function schedule() {
    waiting ??= setTimeout(run, Math.max(0, earliest - performance.now()));
  }

  function open() {
    if (stream || ended) return;
    stream = new EventSource(address);
    stream.addEventListener("change", schedule);
    stream.addEventListener("end", () => {
      ended = true;
      close();
      schedule();
    });
    stream.addEventListener("error", ({ target }) => {
      if (target.readyState !== EventSource.CLOSED) return;
      // Refused, which browsers do not repeat: the run was deleted, or too many pages are open.
      close();
      schedule();
      setTimeout(() => document.hidden || open(), REOPEN_MS);
    });
  }

  function close() {
    stream?.close();
    stream = null;
  }

  // Browsers open six connections to a server, and each stream takes one: hidden tabs give theirs back.
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  if (!document.hidden) open();
}

if (watched) watch(watched.dataset.live);
