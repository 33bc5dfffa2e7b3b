// Relative times count on, exact times appear in the reader's zone. The words come from the server (data-words).
(() => {
  const words = JSON.parse(document.body.dataset.words);
  const language = document.documentElement.lang;
  const exact = new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle: "long" });
  const two = (n) => String(n).padStart(2, "0");
  const compact = (moment) =>
    `${moment.getFullYear()}-${two(moment.getMonth() + 1)}-${two(moment.getDate())} ` +
    `${two(moment.getHours())}:${two(moment.getMinutes())}:${two(moment.getSeconds())}`;
  const fill = (text, n) => text.replace(/%\((n|amount)\)[sd]/, n);

  const amount = (seconds) => {
    if (seconds < 60) return fill(words.s, Math.floor(seconds));
    if (seconds < 3600) return fill(words.min, Math.floor(seconds / 60));
    if (seconds < 48 * 3600) return fill(words.h, Math.floor(seconds / 3600));
    const days = Math.floor(seconds / 86400);
    return fill(days === 1 ? words.day : words.days, days);
  };

  const relative = (moment) => {
    const away = (moment - Date.now()) / 1000;
    if (Math.abs(away) < 5) return words.now;
    return fill(away > 0 ? words.in : words.ago, amount(Math.abs(away)));
  };

  const put = (element, text) => {
    if (element.textContent !== text) element.textContent = text;
  };

  const tell = (root) => {
    for (const element of root.querySelectorAll("time[data-ago]")) {
      const moment = new Date(element.dateTime);
      put(element, relative(moment));
      if (!element.dataset.exact) {
        element.title = exact.format(moment);
        element.dataset.exact = "yes";
      }
    }
    for (const element of root.querySelectorAll("time[data-at]")) {
      const moment = new Date(element.dateTime);
      put(element, compact(moment));
      element.title = relative(moment);
    }
  };

  tell(document);
  setInterval(() => document.hidden || tell(document), 10000);
  document.addEventListener("htmx:after:swap", () => tell(document));
  document.addEventListener("visibilitychange", () => document.hidden || tell(document));
})();
