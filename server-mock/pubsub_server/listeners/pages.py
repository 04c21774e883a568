"""The page at `/`: where a developer who opens the port in a browser finds the rest."""

from __future__ import annotations

from typing import Final

from aiohttp import web

_PAGE: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Hanzo PubSub</title>
<style>
body { font: 16px/1.6 system-ui, sans-serif; max-width: 40rem; margin: 4rem auto; padding: 0 1rem;
  color: #1c2128; background: #fff }
code, pre { font: 14px/1.5 ui-monospace, monospace; background: #f2f4f7; border-radius: 4px }
code { padding: 0 .3em } pre { padding: .8rem 1rem; overflow-x: auto }
@media (prefers-color-scheme: dark) { body { color: #e6e9ee; background: #15181d }
  code, pre { background: #232830 } a { color: #8ab4ff } }
</style>
<h1>Hanzo PubSub</h1>
<p>This port serves the HTTP API and event streams; the WebSocket is on its own port.</p>
<pre>curl -N -H "Authorization: Bearer $(hanzo-pubsub token --user me)" \\
  "<span id="o"></span>/v1/subscribe?topics=demo.**"</pre>
<ul>
<li><a href="/v1/openapi.json">the description of the API</a> (OpenAPI 3.1)</li>
<li><a href="/healthz">health</a>, <a href="/readyz">readiness</a>,
<a href="/metrics">metrics</a></li>
</ul>
<script>document.getElementById("o").textContent = location.origin</script>
"""

_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def landing_page() -> web.Response:
    """A plain page without anything from elsewhere."""
    return web.Response(
        text=_PAGE,
        content_type="text/html",
        headers={"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache"},
    )
