// Keyboard navigation of every page: j, k, enter, /, esc and ?.
//
// A list is an element with [data-list]; its lines are [data-item], each with one link [data-open].
// Pages add keys of their own with `onKey`.

const handlers = new Map();

/** Call `handler(event)` when `key` is pressed outside of text fields. */
export function onKey(key, handler) {
  handlers.set(key, handler);
}

/** The lines of the page's list that can be selected now. */
export function listItems() {
  return [...document.querySelectorAll("[data-list] [data-item]")].filter((item) => item.offsetParent !== null);
}

/** The selected line, or null. */
export function currentItem() {
  return document.querySelector("[data-item][aria-selected=true]");
}

/** Select a line, and scroll to it. */
export function selectItem(item) {
  currentItem()?.removeAttribute("aria-selected");
  if (!item) return;
  item.setAttribute("aria-selected", "true");
  item.scrollIntoView({ block: "nearest" });
  item.querySelector("[data-open]")?.focus({ preventScroll: true });
}

function move(step) {
  const items = listItems();
  if (!items.length) return;
  const at = items.indexOf(currentItem());
  const next = at < 0 ? (step > 0 ? 0 : items.length - 1) : at + step;
  if (next >= items.length) {
    // Past the end: the next page, if there is one.
    const link = document.querySelector("a[rel=next]");
    if (link) link.click();
    return;
  }
  selectItem(items[Math.max(next, 0)]);
}

function openHelp() {
  const dialog = document.getElementById("help");
  if (dialog && !dialog.open) dialog.showModal();
}

function isTyping(target) {
  return target instanceof HTMLElement && (target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName)) && target.type !== "checkbox";
}

onKey("j", () => move(1));
onKey("k", () => move(-1));
onKey("/", () => {
  // The filter of the page's own list comes before the search of the top bar.
  const field = document.querySelector("main [data-find]") ?? document.querySelector("[data-find]");
  field?.focus();
  field?.select();
});
onKey("?", openHelp);
onKey("Enter", (event) => {
  // A focused link or button handles the key itself.
  if (event.target instanceof Element && event.target.closest("a, button, summary, input")) return false;
  currentItem()?.querySelector("[data-open]")?.click();
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (document.querySelector("dialog[open]")) return;
  if (isTyping(event.target)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const handler = handlers.get(event.key);
  if (handler && handler(event) !== false) event.preventDefault();
});

document.addEventListener("focusin", (event) => {
  const item = event.target instanceof Element ? event.target.closest("[data-item]") : null;
  if (item && item !== currentItem()) {
    currentItem()?.removeAttribute("aria-selected");
    item.setAttribute("aria-selected", "true");
  }
});

// A click anywhere on a line opens it, unless it selects text or hits another control.
document.addEventListener("click", (event) => {
  if (!(event.target instanceof Element) || event.target.closest("a, button, input, label, summary, select")) return;
  const link = event.target.closest("[data-item]")?.querySelector("[data-open]");
  if (!link || String(getSelection())) return;
  if (event.ctrlKey || event.metaKey) window.open(link.href, "_blank", "noopener");
  else link.click();
});

// On a narrow screen the navigation is wider than the page.
document.querySelector(".top nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

const help = document.querySelector("[data-help]");
if (help) {
  help.hidden = false;
  help.addEventListener("click", openHelp);
}
