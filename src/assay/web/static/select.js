// The list of runs: select two to six with x, compare them with c.

import { currentItem, onKey } from "./keys.js";

const MOST = 6;
const button = document.querySelector("[data-compare]");
const count = document.querySelector("[data-compare-count]");

function update() {
  const boxes = [...document.querySelectorAll("input[form=compare]")];
  const chosen = boxes.filter((box) => box.checked).length;
  for (const box of boxes) box.disabled = !box.checked && chosen >= MOST;
  button.disabled = chosen < 2;
  count.textContent = chosen ? ` (${chosen})` : "";
}

document.addEventListener("change", (event) => {
  if (event.target.matches("input[form=compare]")) update();
});
document.addEventListener("assay:changed", update);
onKey("x", () => currentItem()?.querySelector("input[form=compare]:not(:disabled)")?.click());
onKey("c", () => {
  if (!button.disabled) button.click();
});
update();
