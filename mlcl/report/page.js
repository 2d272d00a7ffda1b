// Inside MLflow the page has no address of its own, so that links within it lead nowhere.
document.querySelectorAll("a[href^='#']").forEach((link) => {
  link.addEventListener("click", (event) => {
    event.preventDefault();
    document.querySelector(link.getAttribute("href")).scrollIntoView();
  });
});
document.querySelectorAll("details.explore").forEach((details) => {
  details.addEventListener("toggle", () => {
    const place = details.querySelector(".plotly");
    if (!details.open || place.hasChildNodes()) return;
    const picture = JSON.parse(details.querySelector("script").textContent);
    const wide = picture.layout.width > place.clientWidth;
    const size = wide ? {} : { autosize: true, width: null };
    Plotly.newPlot(place, picture.data, { ...picture.layout, ...size }, { responsive: !wide, displaylogo: false });
  });
});
