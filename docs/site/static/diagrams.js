// Draws the diagrams of a page in the colours of its theme, and again when the reader changes that.
const diagrams = [...document.querySelectorAll("div.mermaid pre, pre.mermaid")];
const texts = diagrams.map((diagram) => diagram.textContent);

function isDark() {
  const theme = document.body.dataset.theme;
  const system = window.matchMedia("(prefers-color-scheme: dark)").matches;
  return theme === "dark" || (theme !== "light" && system);
}

async function draw() {
  mermaid.initialize({ startOnLoad: false, theme: isDark() ? "dark" : "default" });
  for (const [number, diagram] of diagrams.entries()) {
    const { svg } = await mermaid.render(`diagram-${number}`, texts[number]);
    diagram.innerHTML = svg;
    diagram.classList.add("drawn");
  }
}

let drawing = draw();
const again = () => { drawing = drawing.then(draw); };
new MutationObserver(again).observe(document.body, { attributeFilter: ["data-theme"] });
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
