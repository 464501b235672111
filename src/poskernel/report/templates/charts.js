// Each chart stands in its card, its specification in the script element behind it. `ast` interprets expressions
// instead of compiling them: the page's policy forbids eval. What fails is said in the card, never only in the console.
for (const card of document.querySelectorAll("[data-chart]")) {
  const specification = JSON.parse(card.nextElementSibling.textContent);
  const options = { ast: true, actions: false, renderer: "svg", tooltip: { theme: "light" } };
  card.replaceChildren();
  vegaEmbed(card, specification, options).then(
    (result) => { card.view = result.view; card.dataset.chart = "ready"; },
    (error) => { card.textContent = "This chart could not be drawn: " + error.message; },
  );
}
