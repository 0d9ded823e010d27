// The filter of a report that is one file: lines without the typed words are hidden.

const field = document.querySelector("[data-find]");
const lines = [...document.querySelectorAll(".report-samples > details")];

if (field && lines.length) {
  field.hidden = false;
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const line of lines) {
      const text = line.textContent.toLowerCase();
      line.hidden = !words.every((word) => text.includes(word));
    }
  });
}
