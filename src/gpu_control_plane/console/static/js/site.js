// A stream that may not come back does so for ever: whoever is not signed in any more is sent to the sign-in.
document.addEventListener("htmx:sse:error", (event) => {
  if (event.detail.status === 401) location.assign("/sign-in?next=" + encodeURIComponent(location.pathname + location.search));
});
