// A log that is at its end stays at its end while it grows; one that was scrolled up stays where it is.
(() => {
  const NEAR_PX = 24;
  let stick = new WeakMap();
  const atEnd = (log) => log.scrollHeight - log.scrollTop - log.clientHeight < NEAR_PX;

  document.addEventListener("scroll", (event) => {
    if (event.target instanceof Element && event.target.matches("[data-log]")) stick.set(event.target, atEnd(event.target));
  }, true);
  const follow = () => {
    for (const log of document.querySelectorAll("[data-log]")) {
      if (stick.get(log) !== false) log.scrollTop = log.scrollHeight;
    }
  };
  document.addEventListener("htmx:after:swap", follow);
  follow();
})();
