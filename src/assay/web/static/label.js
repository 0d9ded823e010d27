// Labels: pass or fail, a score, a corrected answer and a note, by keyboard.
import { onKey } from "./keys.js";

const form = document.querySelector("form[data-label]");
const AUTHOR = "assay.author";
// The next sample is labelled without reaching for the form again.
const KEEP = "assay.labelling";

function remember(store, key, value) {
  try {
    if (value === null) store.removeItem(key);
    else store.setItem(key, value);
  } catch { /* storage may be turned off */ }
}

function recall(store, key) {
  try { return store.getItem(key); } catch { return null; }
}

function start() {
  const token = document.querySelector("meta[name=assay-token]").content;
  const status = form.querySelector("[data-status]");
  const verdicts = [...form.querySelectorAll("[data-verdict]")];
  const field = (name) => form.elements.namedItem(name);
  const pressed = () => verdicts.find((button) => button.getAttribute("aria-pressed") === "true");

  form.hidden = false;
  const author = recall(localStorage, AUTHOR);
  if (author) field("author").value = author;

  function press(verdict) {
    for (const button of verdicts) button.setAttribute("aria-pressed", String(button.dataset.verdict === verdict));
  }

  function read() {
    const score = field("score").value.trim().replace(",", ".");
    if (score && !/^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d{1,3})?$/i.test(score)) throw new Error("the score must be a number");
    return {
      verdict: pressed()?.dataset.verdict ?? null,
      score: score ? Number(score) : null,
      answer: field("answer").value.trim() ? field("answer").value : null,
      note: field("note").value.trim() ? field("note").value : null,
      author: field("author").value.trim(),
    };
  }

  function show(label) {
    const line = document.querySelector("[data-current]");
    line.replaceChildren();
    if (!label) {
      line.append("not labelled");
      return;
    }
    if (label.verdict) {
      const tag = document.createElement("span");
      tag.className = `tag ${label.verdict}`;
      tag.textContent = label.verdict;
      line.append(tag, " ");
    }
    if (label.score !== null) line.append(`score ${label.score} `);
    if (label.answer) line.append("with a corrected answer ");
    const name = document.createElement("bdi");
    name.textContent = label.author || "unknown";
    line.append("by ", name, ", just now");
  }

  async function save(values) {
    status.textContent = "saving …";
    try {
      const answer = await fetch(form.dataset.api, {
        method: "POST",
        headers: { "content-type": "application/json", "x-assay-token": token },
        body: JSON.stringify(values),
      });
      const text = await answer.text();
      if (!answer.ok) {
        let problem = text;
        try { problem = JSON.parse(text).error; } catch { /* plain text */ }
        throw new Error(problem);
      }
      show(JSON.parse(text).current);
      status.textContent = "saved";
      if (values.author) remember(localStorage, AUTHOR, values.author);
    } catch (error) {
      status.textContent = `not saved: ${error.message}`;
    }
  }

  function saveForm() {
    let values;
    try { values = read(); } catch (error) {
      status.textContent = error.message;
      return;
    }
    save(values);
  }

  function choose(verdict) {
    press(pressed()?.dataset.verdict === verdict ? null : verdict);
    saveForm();
  }

  for (const button of verdicts) button.addEventListener("click", () => choose(button.dataset.verdict));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    saveForm();
  });
  form.querySelector("[data-withdraw]").addEventListener("click", () => {
    press(null);
    for (const name of ["score", "answer", "note"]) field(name).value = "";
    saveForm();
  });
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      saveForm();
    }
  });

  function enter() {
    remember(sessionStorage, KEEP, "1");
    verdicts[0].focus({ preventScroll: true });
    form.scrollIntoView({ block: "nearest" });
  }
  const within = (action) => () => (form.contains(document.activeElement) ? action() : false);
  onKey("l", enter);
  onKey("p", within(() => choose("pass")));
  onKey("f", within(() => choose("fail")));
  onKey("c", within(() => {
    form.querySelector("[data-correct]").open = true;
    field("answer").focus();
  }));
  onKey("Escape", within(() => {
    remember(sessionStorage, KEEP, null);
    document.activeElement.blur();
  }));
  if (recall(sessionStorage, KEEP) && !location.hash) verdicts[0].focus({ preventScroll: true });
}

if (form) start();
