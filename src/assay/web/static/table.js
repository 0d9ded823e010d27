// The table of samples: pages, orders and filters replace the table only, not the whole page.

import { currentItem, listItems, onKey, selectItem } from "./keys.js";

function tableAddress(href) {
  const url = new URL(href, location.href);
  if (!url.pathname.endsWith("/table")) url.pathname = `${url.pathname}/table`;
  return url;
}

let swaps = 0;

async function swap(href, { push = true, select = false } = {}) {
  const own = ++swaps;
  document.getElementById("samples")?.setAttribute("aria-busy", "true");
  let text = "";
  try {
    const answer = await fetch(tableAddress(href));
    if (answer.ok) text = await answer.text();
  } catch { /* the page itself shows the problem */ }
  // What was chosen last is shown, whichever answer arrives first.
  if (own !== swaps) return;
  const next = new DOMParser().parseFromString(text, "text/html").getElementById("samples");
  // Looked up now: a live update may have replaced the section meanwhile.
  const section = document.getElementById("samples");
  if (!next || !section) return location.assign(href);
  section.replaceWith(next);
  if (push) history.pushState(null, "", href);
  count();
  next.scrollIntoView({ block: "nearest" });
  if (select) selectItem(listItems()[0]);
}

// Counting what a text search finds takes longer than finding a page of it.
async function count() {
  const place = document.querySelector("[data-count]");
  if (!place) return;
  const address = place.dataset.count;
  // Once: another update may call this before the answer arrives.
  place.removeAttribute("data-count");
  const answer = await fetch(address);
  if (!answer.ok) return;
  const { matched } = await answer.json();
  place.textContent = `${matched.toLocaleString("en-US")} ${place.textContent}`;
}

document.addEventListener("click", (event) => {
  const link = event.target instanceof Element ? event.target.closest("a[data-swap]") : null;
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  swap(link.href, { select: Boolean(currentItem()) && ["next", "prev"].includes(link.rel) });
});

document.addEventListener("submit", (event) => {
  if (!event.target.matches("[data-swap-form]")) return;
  event.preventDefault();
  const given = [...new FormData(event.target)].filter(([, value]) => value);
  const query = new URLSearchParams(given).toString();
  swap(`${event.target.getAttribute("action")}${query ? `?${query}` : ""}#samples`);
});

document.addEventListener("change", (event) => {
  if (event.target.matches("select[data-submit]")) event.target.form.requestSubmit();
});

addEventListener("popstate", () => swap(location.href, { push: false }));
onKey("n", () => document.querySelector("#samples a[rel=next]")?.click());
onKey("p", () => document.querySelector("#samples a[rel=prev]")?.click());
document.addEventListener("assay:changed", count);
count();
