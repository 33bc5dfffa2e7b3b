// A page that shows an instance's log listens whether there is more, and then reads it by its ordinary address.
(() => {
  const FIRST_RETRY_MS = 1000;
  const LAST_RETRY_MS = 30000;
  const NOT_HERE = [4400, 4404, 4429];
  let socket = null;
  let retry = FIRST_RETRY_MS;
  let timer = 0;

  const box = () => document.querySelector("[data-follow]");
  const wanted = () => { const found = box(); return found && found.querySelector("[data-log-grows]") ? found : null; };
  const read = () => { const found = box(); if (found) htmx.trigger(found, "live", {}, false); };

  const open = () => {
    const found = wanted();
    if (socket || timer || !found) return;
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    socket = new WebSocket(`${scheme}//${location.host}${found.dataset.follow}`);
    socket.addEventListener("open", () => { retry = FIRST_RETRY_MS; });
    socket.addEventListener("message", read);
    socket.addEventListener("close", (event) => {
      socket = null;
      if (NOT_HERE.includes(event.code)) return;
      timer = setTimeout(() => { timer = 0; read(); open(); }, retry);
      retry = Math.min(retry * 2, LAST_RETRY_MS);
    });
  };
  const check = () => { if (wanted()) open(); else if (socket) socket.close(1000); };

  document.addEventListener("htmx:after:swap", check);
  check();
})();
