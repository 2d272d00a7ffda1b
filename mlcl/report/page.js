document.querySelectorAll("details.explore").forEach((details) => {
  details.addEventListener("toggle", () => {
    const place = details.querySelector(".plotly");
    if (!details.open || place.hasChildNodes()) return;
    const picture = JSON.parse(details.querySelector("script").textContent);
    Plotly.newPlot(place, picture.data, { ...picture.layout, autosize: true, width: null }, { responsive: true });
  });
});
