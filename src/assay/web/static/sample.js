// The page of a sample: keys, folds, jumps to quoted words, and the rest of long texts.
import { onKey } from "./keys.js";

const find = (selector) => document.querySelector(selector);
const follow = (selector) => () => find(selector)?.click();

onKey("j", follow("[data-next-sample]"));
onKey("k", follow("[data-previous-sample]"));
onKey("u", follow("[data-up]"));
onKey("m", follow("[data-markdown]"));

// Turns: J and K select one, enter opens or closes what it folds.
const turns = () => [...document.querySelectorAll("[data-turn]")];

function moveTurn(step) {
  const all = turns();
  const at = all.findIndex((turn) => turn.contains(document.activeElement));
  const top = all.findIndex((turn) => turn.getBoundingClientRect().bottom > 80);
  const next = all[Math.min(Math.max(at < 0 ? top : at + step, 0), all.length - 1)];
  next?.focus({ preventScroll: true });
  next?.scrollIntoView({ block: "nearest" });
}

onKey("J", () => moveTurn(1));
onKey("K", () => moveTurn(-1));
onKey("Enter", (event) => {
  if (!(event.target instanceof Element) || event.target.closest("a, button, summary, input")) return false;
  const folds = [...(event.target.closest("[data-turn]")?.querySelectorAll("details") ?? [])];
  const open = folds.some((fold) => !fold.open);
  for (const fold of folds) fold.open = open;
});

const openAll = find("[data-open-all]");
function toggleAll() {
  const folds = [...document.querySelectorAll(".chat details")];
  const open = folds.some((fold) => !fold.open);
  for (const fold of folds) fold.open = open;
  if (openAll) openAll.setAttribute("aria-pressed", String(open));
}
onKey("o", toggleAll);
if (openAll) {
  openAll.hidden = false;
  openAll.setAttribute("aria-pressed", "false");
  openAll.addEventListener("click", toggleAll);
}

// Marks: n and N go through quotes and matches, past the page too.
let current = -1;
function showMark(mark) {
  for (let fold = mark.closest("details"); fold; fold = fold.parentElement?.closest("details")) fold.open = true;
  find("mark[aria-current]")?.removeAttribute("aria-current");
  mark.setAttribute("aria-current", "true");
  mark.scrollIntoView({ block: "center" });
}

function moveMark(step) {
  const marks = [...document.querySelectorAll(".chat mark")];
  const next = current + step;
  if (next < 0 || next >= marks.length) {
    find(step > 0 ? "[data-next-match]" : "[data-previous-match]")?.click();
    return;
  }
  current = next;
  showMark(marks[next]);
}
onKey("n", () => moveMark(1));
onKey("N", () => moveMark(-1));

// Anchors: open the folds around a turn, and show the first quoted words in it.
function showTarget() {
  const target = location.hash.startsWith("#turn-") ? document.getElementById(location.hash.slice(1)) : null;
  if (!target) return;
  for (let fold = target.closest("details"); fold; fold = fold.parentElement?.closest("details")) fold.open = true;
  const own = target.querySelector(":scope > details");
  if (own) own.open = true;
  const mark = target.querySelector("mark");
  if (mark) showMark(mark);
  else target.scrollIntoView({ block: "start" });
  target.focus({ preventScroll: true });
}
addEventListener("hashchange", showTarget);
document.addEventListener("click", (event) => {
  // The same anchor again does not change the address.
  const link = event.target instanceof Element ? event.target.closest("a[href^='#turn-']") : null;
  if (link && link.hash === location.hash) showTarget();
});
showTarget();

// The rest of a long text is taken from its own page, as text. Nothing of that page runs or loads.
async function showMore(link) {
  const answer = await fetch(link.href);
  if (!answer.ok) throw new Error(String(answer.status));
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const line = link.closest(".more");
  line.previousElementSibling.append(page.querySelector("[data-text]").textContent);
  const next = page.querySelector("[data-more-next]");
  if (!next) {
    line.remove();
    return;
  }
  link.setAttribute("href", next.getAttribute("href"));
  line.querySelector("small").textContent = page.querySelector("h1 + .meta").textContent;
}

document.addEventListener("click", (event) => {
  const link = event.target instanceof Element ? event.target.closest("a[data-more]") : null;
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  showMore(link).catch(() => { location.href = link.href; });
});
