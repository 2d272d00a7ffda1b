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
