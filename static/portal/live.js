// Live pages: one WebSocket says which object changed; the element that shows it is fetched again by its own address.
// Rows never move under the pointer: what is new waits behind a button. Without the socket the page asks every 10 s.
(() => {
  const words = JSON.parse(document.body.dataset.words);
  const DEBOUNCE_MS = 150;
  const LOOSE_MS = 1500;
  const POLL_MS = 10000;
  const FIRST_RETRY_MS = 500;
  const LAST_RETRY_MS = 30000;
  const SAY_AFTER_MS = 3000;

  const dirty = new Set();
  const loose = new Set();
  let looseTimer = 0;
  const fresh = new Set();
  let timer = 0;
  let retry = FIRST_RETRY_MS;
  let awaySince = null;
  let poll = 0;
  let wasLive = false;

  const MANY = 3;

  // An element names objects ("run:<id>") in data-live, or kinds ("run") when any change of that kind concerns it
  // a little: those are fetched less eagerly.
  const named = (token) => [...document.querySelectorAll(`[data-live~="${token}"]`)];

  // A region in which the person is busy (an open menu, a dialog, a field) waits until they are done.
  const busy = (element) =>
    element.querySelector(".show[data-bs-toggle]") !== null ||
    (element.contains(document.activeElement) && document.activeElement.matches("input, textarea, select"));

  const refetch = (element) => {
    if (element.querySelector("[data-own-live]")) return;
    if (busy(element)) {
      setTimeout(() => element.isConnected && refetch(element), 1000);
      return;
    }
    htmx.trigger(element, "live", {}, false);
  };

  const showFresh = () => {
    const box = document.querySelector("[data-list-new]");
    if (!box) return refetchList();
    box.hidden = fresh.size === 0;
    box.querySelector("[data-list-show]").textContent = words.fresh.replace("%(n)d", fresh.size);
  };

  const refetchList = () => {
    const list = document.querySelector("[data-live-list]");
    fresh.clear();
    if (list) htmx.ajax("GET", location.pathname + location.search, { target: list, swap: "innerHTML" });
  };

  // All rows in one request, each put where it stands; those that are new wait behind the button.
  const refetchRows = async (list) => {
    const answer = await fetch(location.pathname + location.search, {
      headers: { "HX-Request": "true", "HX-Request-Type": "partial" },
    });
    if (!answer.ok || answer.redirected) return;
    const box = document.createElement("template");
    box.innerHTML = await answer.text();
    for (const row of box.content.querySelectorAll("#rows > [id]")) {
      const shown = document.getElementById(row.id);
      if (!shown) fresh.add(row.id);
      else if (!busy(shown)) htmx.swap({ text: row.outerHTML, target: shown, sourceElement: shown, swap: "outerMorph" });
    }
    if (fresh.size) showFresh();
  };

  const refetchSome = (stale) => {
    const list = document.querySelector("[data-live-list]");
    const rows = list ? [...stale].filter((element) => list.contains(element)) : [];
    if (rows.length > MANY) {
      rows.forEach((element) => stale.delete(element));
      refetchRows(list).catch(() => {});
    }
    stale.forEach(refetch);
  };

  const flushLoose = () => {
    looseTimer = 0;
    if (document.hidden) return;
    refetchSome(new Set([...loose].flatMap(named)));
    loose.clear();
  };

  const flush = () => {
    timer = 0;
    if (document.hidden) return;
    const list = document.querySelector("[data-live-list]");
    const stale = new Set();
    for (const key of dirty) {
      const found = named(key);
      found.forEach((element) => stale.add(element));
      if (found.length === 0 && list && list.dataset.liveList === key.split(":")[0]) fresh.add(key);
    }
    dirty.clear();
    refetchSome(stale);
    if (fresh.size) showFresh();
  };

  const mark = (key) => {
    dirty.add(key);
    if (!timer) timer = setTimeout(flush, DEBOUNCE_MS);
    loose.add(key.split(":")[0]);
    if (!looseTimer) looseTimer = setTimeout(flushLoose, LOOSE_MS);
  };

  // What a poll or a reconnect fetches: the list's rows, or the parts of the object; each element once.
  const refetchAll = () => {
    if (document.hidden) return;
    const list = document.querySelector("[data-live-list]");
    if (list) refetchRows(list).catch(() => {});
    document.querySelectorAll("[data-live]").forEach((element) => {
      if (!list || !list.contains(element)) refetch(element);
    });
  };

  // --- the note that says since when the page is not live -------------------------------------------------------------
  const note = document.querySelector("[data-live-note]");
  const tell = () => {
    const away = awaySince !== null && Date.now() - awaySince > SAY_AFTER_MS;
    note.hidden = !away;
    document.documentElement.dataset.live = awaySince === null ? "yes" : "no";
    if (away) {
      const time = new Intl.DateTimeFormat(document.documentElement.lang, { timeStyle: "medium" }).format(awaySince);
      note.querySelector("span").textContent = words.away.replace("%(time)s", time);
      note.title = note.querySelector("span").textContent;
    }
  };

  // What was on its way when the page was drawn may have arrived before the first socket heard of it.
  const passing = () => document.querySelector("[data-live] .chip-moving, [data-live] [data-state='queued']") !== null;

  const opened = () => {
    const missed = wasLive ? awaySince !== null : passing();
    wasLive = true;
    awaySince = null;
    retry = FIRST_RETRY_MS;
    clearInterval(poll);
    poll = 0;
    tell();
    if (missed) refetchAll();
  };

  const closed = () => {
    if (awaySince === null) awaySince = Date.now();
    setTimeout(tell, SAY_AFTER_MS + 50);
    if (!poll) poll = setInterval(refetchAll, POLL_MS);
    setTimeout(connect, retry * (0.75 + Math.random() / 2));
    retry = Math.min(retry * 2, LAST_RETRY_MS);
  };

  const connect = () => {
    const address = new URL("/live/", location.href);
    address.protocol = address.protocol.replace("http", "ws");
    const socket = new WebSocket(address);
    socket.addEventListener("open", opened);
    socket.addEventListener("close", closed);
    socket.addEventListener("message", (event) => {
      const { kind, pk } = JSON.parse(event.data);
      mark(`${kind}:${pk}`);
      document.dispatchEvent(new CustomEvent("portal:changed", { detail: { kind, pk } }));
    });
  };

  document.addEventListener("click", (event) => { if (event.target.closest("[data-list-show]")) refetchList(); });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) { flush(); flushLoose(); } });
  connect();
})();
