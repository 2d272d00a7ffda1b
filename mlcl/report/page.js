// Inside MLflow the page has no address of its own, so that links within it lead nowhere.
document.querySelectorAll("a[href^='#']").forEach((link) => {
  link.addEventListener("click", (event) => {
    event.preventDefault();
    const to = document.querySelector(link.getAttribute("href"));
    to.tabIndex = -1;  // the next Tab goes on from here
    to.focus({ preventScroll: true });
    to.scrollIntoView();
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
