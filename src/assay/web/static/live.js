// Live pages: an element with [data-live] names a stream of events. After a change the page is
// fetched again, and the elements with the same ids are replaced.

const SHORTEST_MS = 1000;
const watched = document.querySelector("[data-live]");

async function refresh() {
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (!answer.ok) return;
  const next = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const id of ["figures", "runs", "samples"]) {
    const old = document.getElementById(id);
    const fresh = next.getElementById(id);
    if (!old || !fresh || old.contains(document.activeElement) && isTyping()) continue;
    keepState(old, fresh);
    old.replaceWith(fresh);
  }
  document.dispatchEvent(new CustomEvent("assay:changed"));
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
  const stream = new EventSource(address);
  let waiting = null;
  let last = 0;
  let busy = false;
  const run = async () => {
    waiting = null;
    if (busy) return schedule();
    busy = true;
    const started = performance.now();
    try {
      await refresh();
    } catch {
      // The server may be gone; the stream reconnects when it is back.
    }
    // A page that takes long to build is asked for less often.
    last = performance.now() + 4 * (performance.now() - started);
    busy = false;
  };
  const schedule = () => {
    waiting ??= setTimeout(run, Math.max(0, last + SHORTEST_MS - performance.now()));
  };
  let first = true;
  stream.addEventListener("change", () => {
    // The first event repeats what the page was made from.
    if (first) last = performance.now();
    first = false;
    schedule();
  });
  stream.addEventListener("end", () => {
    stream.close();
    schedule();
  });
}

if (watched) watch(watched.dataset.live);
