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
