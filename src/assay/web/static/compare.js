// The choice of runs to compare: two to six, counted while they are ticked.

const FEWEST = 2;
const MOST = 6;

const form = document.querySelector("[data-picker]");

function update() {
  const count = form.querySelectorAll("input[name=run]:checked").length;
  form.querySelector("[data-submit]").disabled = count < FEWEST || count > MOST;
  form.querySelector("[data-picked]").textContent =
    count > MOST ? `${count} runs are chosen; at most ${MOST} can be compared` : `${count} chosen`;
}

if (form) {
  form.addEventListener("change", update);
  update();
}
